// Text and elements. Data is only ever set as text: a candidate's name is somebody else's.

export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function ratio(value) {
  if (value === null || value === undefined) return "–";
  return value >= 1000 ? "> 1000" : value < 0.0005 ? "< 0.001" : value.toFixed(3);
}

export function interval(value, ci) {
  return ci ? `${ratio(value)} [${ratio(ci[0])}, ${ratio(ci[1])}]` : ratio(value);
}

export function microseconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 100 ? value.toFixed(2) : value.toFixed(1);
}

export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 100) return `${whole} s`;
  if (whole < 6000) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function clock(iso) {
  const time = new Date(iso);
  return Number.isNaN(time.getTime()) ? iso : time.toLocaleTimeString([], { hour12: false });
}

export function count(number, one, many) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many ?? `${one}s`}`;
}

const BAD = new Set(["fail", "crash", "timeout", "build-error", "cheat", "reject"]);

export function verdict(text) {
  if (text === null || text === undefined) return el("span", { class: "verdict" }, "–");
  const good = text === "pass" || text === "passed" || text === "promote";
  const bad = BAD.has(text) || text.startsWith("not ") || text.startsWith("fail");
  const kind = good ? "good" : bad ? "bad" : "warn";
  const glyph = good ? "✓" : bad ? "✕" : "•";
  return el("span", { class: "verdict", "data-kind": kind }, `${glyph} ${text}`);
}
