/** For page.waitForFunction: a chart is there when its canvas, or its path, has something on it. */
export const drawn = (selector) => [...document.querySelectorAll(selector)].some((one) => {
  if (one instanceof SVGPathElement) return (one.getAttribute('d') ?? '').length > 60;
  if (!one.width || !one.height || !one.getBoundingClientRect().width) return false;
  // A canvas that draws beside the page cannot be read: a copy of it can.
  const copy = document.createElement('canvas');
  [copy.width, copy.height] = [one.width, one.height];
  const ctx = copy.getContext('2d');
  ctx.drawImage(one, 0, 0);
  const pixels = ctx.getImageData(0, 0, copy.width, copy.height).data;
  for (let i = 3; i < pixels.length; i += 4) if (pixels[i]) return true;
  return false;
});
