// The contrast, as WCAG 2 defines it, of all text and of the charts' lines.
(() => {
  const parse = (color) => {
    const found = /^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/.exec(color);
    if (!found) throw new Error("not understood: " + color);
    return [found[1], found[2], found[3], found[4] ?? 1].map(Number);
  };
  const over = (top, ground) => [0, 1, 2].map((n) => top[n] * top[3] + ground[n] * (1 - top[3])).concat(1);
  const groundOf = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
    const canvas = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
    return layers.reduceRight((ground, layer) => over(layer, ground), canvas);
  };
  const luminance = (color) => {
    const [r, g, b] = color.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const part = (element, color, what, least) => {
    const ground = groundOf(element), ink = over(parse(color), ground);
    const [low, high] = [luminance(ink), luminance(ground)].sort((a, b) => a - b);
    return { what, least, ink: ink.slice(0, 3).join(), ground: ground.slice(0, 3).join(), ratio: (high + 0.05) / (low + 0.05) };
  };
  const parts = [];
  for (const e of document.body.querySelectorAll("*")) {
    if (e.matches("script, style, noscript") || !e.checkVisibility()) continue;
    const said = [...e.childNodes].filter((n) => n.nodeType === Node.TEXT_NODE).map((n) => n.data.trim()).join("");
    if (said) parts.push(part(e, getComputedStyle(e).color, e.tagName + " " + said.slice(0, 40), 4.5));
    if (e.matches("polyline")) parts.push(part(e, getComputedStyle(e).stroke, "chart", 3));
  }
  return parts;
})()
