// Canvases: pictures drawn by a pen, in the colours of the page and at the density of the screen.

/** Clear a canvas to the size of its parent; return the pen, the size, and the colours by name; null if hidden. */
export function cleared(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas.parentElement;
  if (!width) return null;
  const density = window.devicePixelRatio || 1;
  canvas.width = width * density;
  canvas.height = height * density;
  const pen = canvas.getContext("2d");
  pen.scale(density, density);
  pen.font = "11px system-ui, sans-serif";
  const style = getComputedStyle(canvas);
  return { pen, width, height, color: (name) => style.getPropertyValue(name) };
}
