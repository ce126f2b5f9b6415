"use strict";
(() => {
const $ = (selector, place = document) => place.querySelector(selector);
const all = (selector, place = document) => [...place.querySelectorAll(selector)];
const json = (id) => JSON.parse(document.getElementById(id).textContent);
const root = document.documentElement;

/* Theme: what the system says until somebody says otherwise. */
const dark = matchMedia("(prefers-color-scheme: dark)");
const button = $("#theme");
const stored = () => { try { return localStorage.getItem("kopt-theme"); } catch { return null; } };
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
const showTheme = () => {
  button.setAttribute("aria-pressed", String(isDark()));
  button.textContent = isDark() ? "Light" : "Dark";
  button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  document.dispatchEvent(new Event("theme"));
};
if (stored()) root.dataset.theme = stored();
button.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  try { localStorage.setItem("kopt-theme", root.dataset.theme); } catch { /* no storage here */ }
  showTheme();
});
dark.addEventListener("change", showTheme);
showTheme();

/* Tables: search, sort, and pages where there are many rows. */
const PAGE = 100;
const number = (text) => {
  const value = parseFloat(text.replace(/[,\u2009]/g, ""));
  return Number.isNaN(value) ? null : value;
};
const unpack = (column) => (Array.isArray(column) ? column : column.i.map((k) => column.d[k]));
for (const table of all("table.data")) {
  const block = table.closest(".block");
  const heads = all("th", table);
  const body = $("tbody", table);
  const numeric = heads.map((head) => head.classList.contains("n"));
  const classes = heads.map((head, at) => (numeric[at] ? "n" : ""));
  let rows;
  if (table.dataset.packed) {
    const packed = json(table.dataset.packed);
    const columns = packed.columns.map(unpack);
    rows = Array.from({ length: packed.rows }, (_, at) => ({
      cells: columns.map((column) => column[at]),
      make() {
        const line = document.createElement("tr");
        this.cells.forEach((text, column) => {
          const cell = line.insertCell();
          cell.textContent = text;
          const told = packed.classes[column];
          cell.className = classes[column]
            || (told === "state" ? Object.keys(packed.states).find((state) => packed.states[state].includes(text)) ?? "" : told);
        });
        return line;
      },
    }));
  } else {
    rows = all("tr", body).map((line) => ({
      cells: [...line.cells].map((cell) => cell.textContent.trim()),
      make: () => line,
    }));
  }
  let found = rows;
  let first = 0;
  const paged = rows.length > 2 * PAGE;
  const output = block && $("output", block);
  const input = block && $("input", block);
  let pages;
  const show = () => {
    const shown = paged ? found.slice(first, first + PAGE) : found;
    body.replaceChildren(...shown.map((row) => row.make()));
    if (output) {
      output.textContent = found.length === rows.length
        ? `${rows.length.toLocaleString("en")} rows`
        : `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
    }
    if (pages) {
      const last = Math.max(0, Math.ceil(found.length / PAGE) - 1);
      $("span", pages).textContent = `page ${first / PAGE + 1} of ${last + 1}`;
      $("[data-step='-1']", pages).disabled = first === 0;
      $("[data-step='1']", pages).disabled = first / PAGE >= last;
    }
  };
  if (paged) {
    pages = document.createElement("div");
    pages.className = "pages";
    for (const [step, text] of [[-1, "Earlier"], [0, ""], [1, "Later"]]) {
      const part = document.createElement(step ? "button" : "span");
      part.textContent = text;
      if (step) {
        part.type = "button";
        part.className = "quiet";
        part.dataset.step = step;
        part.addEventListener("click", () => { first += step * PAGE; show(); });
      }
      pages.append(part);
    }
    table.closest(".scroll").after(pages);
  }
  const filter = () => {
    const words = input ? input.value.toLowerCase().split(/\s+/).filter(Boolean) : [];
    found = words.length
      ? rows.filter((row) => {
        row.text ??= row.cells.join("\n").toLowerCase();
        return words.every((word) => row.text.includes(word));
      })
      : rows;
    first = 0;
    show();
  };
  input?.addEventListener("input", filter);
  heads.forEach((head, column) => {
    $("button", head)?.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const sign = up ? 1 : -1;
      const keys = new Map(rows.map((row) => {
        const text = row.cells[column];
        return [row, numeric[column] ? number(text) : text.toLowerCase()];
      }));
      rows = [...rows].sort((a, b) => {
        const [left, right] = [keys.get(a), keys.get(b)];
        if (left === null || right === null) return (left === null) - (right === null);
        return sign * (left < right ? -1 : left > right ? 1 : 0);
      });
      filter();
    });
  });
  if (paged) show();
}

/* Figures: the nearest point under the pointer, or the next one by arrow keys. */
const tip = $("#tip");
const hide = () => { tip.hidden = true; all(".cursor").forEach((ring) => ring.remove()); };
const say = (text, x, y) => {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y - box.height - 12 < 8 ? y + 16 : y - box.height - 12}px`;
};
const place = (scale, low, high, value) => {
  const at = scale === "log" ? Math.log10 : (v) => v;
  return (at(value) - at(low)) / (at(high) - at(low));
};
for (const figure of all("figure.plot")) {
  const chart = json(figure.dataset.chart);
  const canvas = $(".canvas", figure);
  const visible = () => all("svg.chart", canvas).find((svg) => svg.getClientRects().length);
  const points = (svg) => {
    const told = svg.dataset.frame.split(" ");
    const [left, top, right, bottom, x0, x1, y0, y1] = told.slice(0, 8).map(Number);
    const [xs, ys] = told.slice(8);
    return chart.series.flatMap((series) => series.x.map((x, at) => ({
      label: series.label[at],
      x: left + place(xs, x0, x1, x) * (right - left),
      y: ys === "category"
        ? top + place(ys, y0, y1, series.y[at]) * (bottom - top)
        : bottom - place(ys, y0, y1, series.y[at]) * (bottom - top),
    }))).filter((point) => point.label);
  };
  const cache = new Map();
  const known = (svg) => {
    if (!cache.has(svg)) cache.set(svg, points(svg));
    return cache.get(svg);
  };
  const mark = (svg, point) => {
    all(".cursor").forEach((ring) => ring.remove());
    const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
    ring.setAttribute("class", "cursor");
    ring.setAttribute("r", 7);
    ring.setAttribute("cx", point.x);
    ring.setAttribute("cy", point.y);
    svg.append(ring);
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    say(point.label, box.left + point.x * scale, box.top + point.y * scale);
  };
  canvas.addEventListener("pointermove", (event) => {
    const svg = visible();
    if (!svg) return;
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale;
    const y = (event.clientY - box.top) * scale;
    let best = null;
    let least = 28 * 28;
    for (const point of known(svg)) {
      const far = (point.x - x) ** 2 + (point.y - y) ** 2;
      if (far < least) { least = far; best = point; }
    }
    if (best) mark(svg, best); else hide();
  });
  canvas.addEventListener("pointerleave", hide);
  let at = -1;
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const svg = visible();
    if (event.key === "Escape") hide();
    if (!step || !svg) return;
    event.preventDefault();
    const list = known(svg);
    if (!list.length) return;
    at = (at + step + list.length) % list.length;
    mark(svg, list[at]);
  });
  canvas.addEventListener("blur", hide);
}

/* On paper nothing can be unfolded. */
const folded = [];
addEventListener("beforeprint", () => {
  for (const part of all("details:not([open])")) { folded.push(part); part.open = true; }
});
addEventListener("afterprint", () => folded.splice(0).forEach((part) => { part.open = false; }));

/* Looking closer: plotly is in this file, packed, and is unpacked when first asked for. */
const packed = $("#plotly");
let loading = null;
const load = () => {
  loading ??= (async () => {
    const bytes = Uint8Array.from(atob(packed.textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    return globalThis.Plotly;
  })();
  return loading;
};
const SYMBOL = { circle: "circle", square: "square", diamond: "diamond-open", triangle: "triangle-up-open", cross: "x-thin-open" };
const DASH = { dashed: "dash", dotted: "dot" };
const colours = () => {
  const style = getComputedStyle(root);
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  const [accent, other, base, ink, poor] = ["accent", "other", "base", "ink", "poor"].map(get);
  return {
    role: { candidate: accent, incumbent: other, baseline: base, floor: ink, good: accent, poor, muted: other },
    ink, soft: get("soft"), grid: get("grid"), card: get("card"),
  };
};
const axis = (told, colour, sideways) => ({
  title: { text: told.title, font: { size: 12 } }, type: told.scale === "log" ? "log" : "linear",
  gridcolor: colour.grid, zeroline: false, linecolor: colour.grid, automargin: true,
  ...(told.whole ? { tickformat: "d", nticks: 10 } : {}),
  ...(told.categories.length
    ? { tickvals: told.categories.map((_, k) => k), ticktext: told.categories, ...(sideways ? { autorange: "reversed" } : {}) }
    : {}),
});
const chart = (figure) => json(figure.dataset.chart);
/* Only what looks: nothing here is sent to anybody. */
const CLOSER = {
  displaylogo: false, responsive: true, plotlyServerURL: "", showSendToCloud: false, showEditInChartStudio: false,
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
};
const draw = async (figure) => {
  const told = chart(figure);
  const Plotly = await load();
  const colour = colours();
  const target = $(".closer", figure);
  const traces = told.series.map((series) => {
    const shade = colour.role[series.role];
    const common = { name: series.name, x: series.x, y: series.y, text: series.label, hoverinfo: "text" };
    const spread = series.low && {
      type: "data", symmetric: false, color: colour.ink, thickness: 1.5, width: 0,
      array: series.high.map((v, k) => (v === null ? 0 : v - series.y[k])),
      arrayminus: series.low.map((v, k) => (v === null ? 0 : series.y[k] - v)),
    };
    if (series.marker === "bar") return { ...common, type: "bar", marker: { color: shade }, error_y: spread || undefined };
    const lines = series.line !== "none";
    return {
      ...common, type: "scatter",
      mode: [lines && "lines", series.marker !== "none" && "markers"].filter(Boolean).join("+"),
      line: { color: shade, width: 1.8, shape: series.line === "step" ? "hv" : "linear", dash: DASH[series.line] },
      marker: { color: shade, symbol: series.role === "incumbent" ? "square-open" : SYMBOL[series.marker], size: 8, line: { color: shade, width: 1.5 } },
    };
  });
  await Plotly.react(target, traces, {
    height: Math.max(420, 60 + 40 * told.y.categories.length),
    margin: { l: 60, r: 16, t: 24, b: 50 },
    paper_bgcolor: colour.card, plot_bgcolor: colour.card, font: { color: colour.soft, family: "system-ui, sans-serif", size: 12 },
    xaxis: axis(told.x, colour, false), yaxis: axis(told.y, colour, told.sideways),
    legend: { orientation: "h", y: 1.12, x: 0 }, hovermode: "closest", dragmode: "zoom",
  }, CLOSER);
};
if (packed && "DecompressionStream" in globalThis) {
  for (const figure of all("figure.plot")) {
    const toggle = $(".explore", figure);
    toggle.hidden = false;
    toggle.setAttribute("aria-pressed", "false");
    toggle.addEventListener("click", async () => {
      const open = toggle.getAttribute("aria-pressed") !== "true";
      toggle.setAttribute("aria-pressed", String(open));
      toggle.textContent = open ? "Loading" : "Explore";
      let closer = $(".closer", figure);
      if (!closer) {
        closer = document.createElement("div");
        closer.className = "closer";
        $(".canvas", figure).after(closer);
      }
      closer.hidden = !open;
      if (open) await draw(figure);
      const still = toggle.getAttribute("aria-pressed") === "true";
      closer.hidden = !still;
      $(".canvas", figure).hidden = still;
      $(".legend", figure).hidden = still || chart(figure).series.length === 1;
      toggle.textContent = still ? "Back" : "Explore";
    });
  }
  document.addEventListener("theme", () => {
    all(".closer").filter((closer) => !closer.hidden).forEach((closer) => draw(closer.closest("figure")));
  });
}
})();
