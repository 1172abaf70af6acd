// The client of `hloom lsp`.
const { commands, window, workspace } = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

async function start() {
  const [command, ...args] = workspace.getConfiguration("hlo").get("server.command");
  const server = { command, args, transport: TransportKind.stdio };
  client = new LanguageClient("hlo", "HLO", server, { documentSelector: [{ language: "hlo" }] });
  try {
    await client.start();
  } catch (error) {
    window.showErrorMessage(
      `HLO: cannot start "${[command, ...args].join(" ")}". Install it by pip install 'hloom[lsp]', ` +
        `or set hlo.server.command. (${error.message})`,
    );
  }
}

async function activate(context) {
  const restart = async () => {
    if (client?.isRunning()) await client.stop();
    await start();
  };
  const configured = workspace.onDidChangeConfiguration((event) => {
    if (event.affectsConfiguration("hlo.server.command")) return restart();
  });
  context.subscriptions.push(commands.registerCommand("hlo.restart", restart), configured);
  await start();
}

function deactivate() {
  return client?.isRunning() ? client.stop() : undefined;
}

module.exports = { activate, deactivate };
