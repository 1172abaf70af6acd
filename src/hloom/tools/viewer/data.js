// Read the data embedded in the page: deflated JSON in base64, one script element for each part.

const parts = new Map();

/** Return a part of the page's data, inflated on its first use. */
export function part(name) {
  if (!parts.has(name)) parts.set(name, inflate(document.getElementById(name).textContent));
  return parts.get(name);
}

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}
