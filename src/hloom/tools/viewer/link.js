// The state of the page in its address, so that a link restores the view.

/** Return the state in the address: an object of texts. */
export function readLink() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

let waiting = null;

/** Write the state to the address a moment later; empty values are left out. */
export function writeLink(state) {
  clearTimeout(waiting);
  waiting = setTimeout(() => {
    const kept = Object.entries(state()).filter(([, value]) => value !== "" && value !== null && value !== undefined);
    history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
  }, 200);
}
