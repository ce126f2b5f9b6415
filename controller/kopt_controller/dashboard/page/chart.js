// Charts as SVG: the trajectory, an interval as it shrinks, and the bar in a row of a table.

const SPACE = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function titled(mark, text) {
  mark.append(svg("title", {}, text));
  return mark;
}

// Ticks of a logarithmic axis: 1, 2 and 5 of each power of ten, and more where those are few.
function ticks(lo, hi) {
  for (const steps of [[1], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9]]) {
    const found = [];
    for (let power = Math.floor(Math.log10(lo)); power <= Math.ceil(Math.log10(hi)); power += 1)
      for (const step of steps) {
        const value = step * 10 ** power;
        if (value >= lo && value <= hi) found.push(value);
      }
    if (found.length >= 4) return found;
  }
  const found = [];
  for (let each = 0; each <= 4; each += 1) found.push(lo * (hi / lo) ** (each / 4));
  return found;
}

const label = (value) => String(Number(value.toPrecision(value >= 0.8 && value < 1.25 ? 3 : 2)));

function frame(width, height, lo, hi, text) {
  const left = 46, right = 14, top = 14, bottom = 30;
  const y = (value) => {
    const share = Math.log(value / lo) / Math.log(hi / lo);
    return height - bottom - Math.min(1.02, Math.max(-0.02, share)) * (height - top - bottom);
  };
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text });
  for (const tick of ticks(lo, hi)) {
    root.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
    root.append(svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, label(tick)));
  }
  return { root, left, right, top, bottom, y, width, height };
}

const MARKS = {
  passed: (x, y) => svg("circle", { class: "passed", cx: x, cy: y, r: 4.5 }),
  refused: (x, y) => svg("path", { class: "refused", d: `M${x} ${y - 5}l5 5l-5 5l-5-5z` }),
  wrong: (x, y) => svg("path", { class: "wrong", d: `M${x - 4} ${y - 4}l8 8m0-8l-8 8` }),
  promoted: (x, y) => svg("circle", { class: "promoted", cx: x, cy: y, r: 8 }),
};

export function legend(place) {
  const entries = [
    ["passed the gate", MARKS.passed(9, 6)],
    ["not passed", MARKS.refused(9, 6)],
    ["wrong, no time", MARKS.wrong(9, 6)],
    ["promoted", svg("g", {}, MARKS.promoted(9, 6), svg("circle", { class: "passed", cx: 9, cy: 6, r: 4 }))],
    ["best so far", svg("line", { class: "best", x1: 0, x2: 18, y1: 6, y2: 6 })],
    ["incumbent", svg("line", { class: "incumbent", x1: 0, x2: 18, y1: 6, y2: 6 })],
    ["steered", svg("path", { class: "steered", d: "M4 1h10l-5 10z" })],
  ];
  place.replaceChildren(
    ...entries.map(([text, mark]) => {
      const item = document.createElement("li");
      item.append(svg("svg", { viewBox: "0 0 18 12", "aria-hidden": "true" }, mark), text);
      return item;
    }),
  );
}

const MOST = 1200; // Marks that are drawn one by one; of more, the oldest that set no best are left out.

// points: {round, value, ci, faster, kind, promoted, text}; steers: rounds that took one.
export function trajectory(place, points, steers, level) {
  if (!points.length) {
    place.replaceChildren(Object.assign(document.createElement("p"), { className: "empty", textContent: "No candidate has been timed yet." }));
    return;
  }
  const width = Math.max(280, place.clientWidth), height = Math.min(300, Math.max(220, width * 0.5));
  const values = points.map((p) => p.value).filter((v) => v !== null).concat(1, level);
  const lo = Math.min(...values) / 1.18, hi = Math.max(1.12, Math.max(...values) * 1.12);
  const best = Math.min(...points.filter((p) => p.faster).map((p) => p.value), 1);
  const text = `Trajectory of ${points.length} candidates. Best so far: ${best.toFixed(3)} of the first incumbent's time.`;
  const { root, left, right, top, bottom, y } = frame(width, height, lo, hi, text);
  const inner = width - left - right - 44;
  const x = (index) => left + 26 + (points.length === 1 ? inner / 2 : (index * inner) / (points.length - 1));
  root.append(svg("line", { class: "unit", x1: left, x2: width - right, y1: y(1), y2: y(1) }));
  rounds(root, points, steers, { x, top, height, bottom });

  let low = 1, line = `M${left} ${y(1)}`, standing = `M${left} ${y(1)}`, drawn = 0;
  const marks = svg("g");
  const left_out = Math.max(0, points.length - MOST);
  points.forEach((point, index) => {
    const sets = point.faster && point.value < low;
    if (sets) {
      line += `H${x(index).toFixed(1)}V${y(point.value).toFixed(1)}`;
      low = point.value;
    }
    if (point.promoted) standing += `H${x(index).toFixed(1)}V${y(point.value).toFixed(1)}`;
    if (index < left_out && !sets && !point.promoted) return;
    const at = point.value === null ? height - bottom - 8 : y(point.value);
    const mark = svg("g", {}, MARKS[point.kind](x(index), at));
    if (point.ci && point.value !== null)
      mark.prepend(svg("line", { class: "reach", x1: x(index), x2: x(index), y1: y(point.ci[0]), y2: y(point.ci[1]) }));
    if (point.promoted) mark.append(MARKS.promoted(x(index), at));
    marks.append(titled(mark, point.text));
    drawn += 1;
  });
  root.append(svg("path", { class: "incumbent", d: `${standing}H${width - right}` }));
  root.append(svg("path", { class: "best", d: `${line}H${width - right}` }), marks);
  const under = y(low) + 16 < height - bottom - 2 ? 16 : -7;
  root.append(svg("text", { class: "strong", x: width - right, y: y(low) + under, "text-anchor": "end" }, low.toFixed(3)));
  place.replaceChildren(root);
}

function rounds(root, points, steers, { x, top, height, bottom }) {
  let last = null, free = 0;
  points.forEach((point, index) => {
    if (point.round === last) return;
    last = point.round;
    const at = index ? (x(index - 1) + x(index)) / 2 : x(0) - 14;
    if (index) root.append(svg("line", { class: "grid", x1: at, x2: at, y1: top, y2: height - bottom }));
    if (steers.has(point.round)) root.append(titled(svg("path", { class: "steered", d: `M${at - 5} ${top - 10}h10l-5 9z` }), `steered before round ${point.round}`));
    if (at >= free) {
      root.append(svg("text", { x: at + 4, y: height - bottom + 18 }, `round ${point.round}`));
      free = at + 72;
    }
  });
}

// pair: the document of the board.
export function shrinking(place, pair) {
  const seen = pair ? pair.history : [];
  if (!pair || (!seen.length && !pair.final)) {
    place.replaceChildren(Object.assign(document.createElement("p"), { className: "empty", textContent: pair ? `${pair.blocks} blocks so far: too few for an interval that says anything.` : "Nothing has been compared yet." }));
    return;
  }
  const width = Math.max(280, place.clientWidth), height = Math.min(300, Math.max(220, width * 0.5));
  const final = pair.final && pair.final.ci ? { ratio: pair.final.ratio, lo: pair.final.ci[0], hi: pair.final.ci[1] } : null;
  const end = final ?? { ratio: seen.at(-1)[1], lo: seen.at(-1)[2], hi: seen.at(-1)[3] };
  // An early interval of two blocks can span decades: it is cut, so that the last one can be read.
  const reach = Math.max(1.5, (end.hi / end.lo) ** 2);
  const lo = Math.max(Math.min(...seen.map((s) => s[2]), end.lo), end.ratio / reach / 1.3) / 1.05;
  const hi = Math.min(Math.max(...seen.map((s) => s[3]), end.hi), end.ratio * reach * 1.3) * 1.05;
  const low = Math.max(Math.min(lo, 0.95), end.ratio / 100), high = Math.min(Math.max(hi, 1.05), end.ratio * 100);
  const text = `Time of ${pair.b} over ${pair.a}: ${end.ratio.toFixed(3)}, interval ${end.lo.toFixed(3)} to ${end.hi.toFixed(3)}.`;
  const { root, left, right, top, bottom, y } = frame(width, height, low, high, text);
  const first = seen.length ? seen[0][0] : 0, most = Math.max(pair.blocks, seen.length ? seen.at(-1)[0] : 1);
  const inner = width - left - right - 46;
  const x = (blocks) => left + 10 + (most === first ? inner / 2 : ((blocks - first) * inner) / (most - first));
  const clip = svg("clipPath", { id: "plot" }, svg("rect", { x: left, y: top, width: width - left - right, height: height - top - bottom }));
  root.append(svg("defs", {}, clip));
  root.append(svg("line", { class: "unit", x1: left, x2: width - right, y1: y(1), y2: y(1) }));
  const margin = pair.final ? pair.final.margin : null;
  for (const edge of margin ? [1 - margin, 1 / (1 - margin)] : [])
    root.append(svg("line", { class: "margin", x1: left, x2: width - right, y1: y(edge), y2: y(edge) }));
  const plot = svg("g", { "clip-path": "url(#plot)" });
  if (seen.length > 1) {
    const over = seen.map((s) => `${x(s[0]).toFixed(1)} ${y(s[3]).toFixed(1)}`);
    const under = seen.map((s) => `${x(s[0]).toFixed(1)} ${y(s[2]).toFixed(1)}`).reverse();
    plot.append(svg("path", { class: "band", d: `M${over.join("L")}L${under.join("L")}Z` }));
    plot.append(svg("path", { class: "ratio", d: `M${seen.map((s) => `${x(s[0]).toFixed(1)} ${y(s[1]).toFixed(1)}`).join("L")}` }));
  } else if (seen.length && !final) {
    plot.append(whisker(x(seen[0][0]), end, y));
  }
  root.append(plot);
  if (final) root.append(whisker(width - right - 20, final, y));
  const note = y(end.ratio) < top + 26 ? 18 : -9;
  root.append(svg("text", { class: "strong", x: width - right - 32, y: y(end.ratio) + note, "text-anchor": "end" }, end.ratio.toFixed(3)));
  if (most > first && seen.length) root.append(svg("text", { x: left + 10, y: height - bottom + 18 }, `${first} blocks`));
  root.append(svg("text", { x: width - right, y: height - bottom + 18, "text-anchor": "end" }, `${pair.blocks || "?"} blocks`));
  place.replaceChildren(root);
}

function whisker(x, { ratio, lo, hi }, y) {
  return svg("g", {},
    svg("path", { class: "whisker", d: `M${x - 5} ${y(lo)}h10M${x - 5} ${y(hi)}h10M${x} ${y(lo)}V${y(hi)}` }),
    svg("circle", { class: "passed", cx: x, cy: y(ratio), r: 5 }));
}

// A ratio with its interval on a scale that all rows of a table share.
export function forest(value, ci, lo, hi) {
  const width = 150, middle = 9;
  const x = (each) => 4 + Math.min(1, Math.max(0, Math.log(each / lo) / Math.log(hi / lo))) * (width - 8);
  const root = svg("svg", { class: "forest", viewBox: `0 0 ${width} 18`, "aria-hidden": "true" });
  root.append(svg("line", { class: "unit", x1: x(1), x2: x(1), y1: 0, y2: 18 }));
  if (ci) root.append(svg("path", { class: "whisker", d: `M${x(ci[0])} ${middle}H${x(ci[1])}` }));
  root.append(svg("circle", { class: "passed", cx: x(value), cy: middle, r: 4 }));
  return root;
}
