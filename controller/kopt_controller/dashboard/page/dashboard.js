// The page: keeps what the server sends by name, and draws again what has changed.

import { forest, legend, shrinking, trajectory } from "./chart.js";
import { clock, count, duration, el, interval, microseconds, ratio, verdict } from "./format.js";
import { Heads, later } from "./table.js";

const $ = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.search).get("run");
const query = asked ? `?run=${encodeURIComponent(asked)}` : "";
const board = new Map();
const get = (name) => board.get(name) ?? {};
const named = (prefix) => [...board].filter(([name]) => name.startsWith(prefix)).map(([, value]) => value);

// Sections, and the beginnings of the names that they are made of.
const SECTIONS = [
  [head, ["run", "environment"]],
  [figures, ["run", "round", "candidate"]],
  [now, ["now", "run", "round", "work", "state", "profile"]],
  [drawTrajectory, ["round", "candidate"]],
  [choosePair, ["pair"]],
  [drawPair, ["pair"]],
  [candidates, ["candidate"]],
  [rounds, ["round", "run"]],
  [said, ["steer", "round"]],
];
const dirty = new Set();
let drawing = false;

function changed(names) {
  const kinds = new Set(names.map((name) => name.split("/")[0]));
  for (const [draw, of] of SECTIONS) if (of.some((kind) => kinds.has(kind))) dirty.add(draw);
  if (kinds.has("run")) refreshEvaluations();
  if (drawing) return;
  drawing = true;
  // A page in the background gets no animation frames, and keeps up all the same.
  if (document.hidden) setTimeout(draw, 0);
  else requestAnimationFrame(draw);
}

function draw() {
  drawing = false;
  const due = [...dirty];
  dirty.clear();
  for (const section of due) {
    try {
      section();
    } catch (error) {
      // One section that cannot be drawn must not take the others with it.
      console.error(error);
    }
  }
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1);
  window.dispatchEvent(new Event("drawn"));
}

// The stream

function listen() {
  const stream = new EventSource(`events${query}`);
  stream.addEventListener("open", () => link("live"));
  stream.addEventListener("error", () => link(stream.readyState === EventSource.CLOSED ? "ended" : "connection lost, trying again"));
  stream.addEventListener("board", (event) => {
    const news = JSON.parse(event.data);
    if (news.whole) board.clear();
    for (const [name, value] of Object.entries(news.board)) board.set(name, value);
    problem(get("run").problem ?? "");
    changed(Object.keys(news.board));
  });
  stream.addEventListener("empty", () => {
    $("title").textContent = "No run yet";
    $("subtitle").textContent = "kopt round --definition DEF starts one; it appears here.";
  });
  stream.addEventListener("problem", (event) => {
    const { error, hint } = JSON.parse(event.data);
    problem(`${error}. ${hint}`);
    stream.close();
    link("ended");
  });
}

function link(text) {
  if ($("link").textContent !== text) $("link").textContent = text;
}

function problem(text) {
  $("problem").hidden = !text;
  $("problem").textContent = text;
}

// Head and figures

const STATES = { running: "● running", finished: "✓ finished", interrupted: "‖ interrupted", gone: "✕ its folder is gone" };

function head() {
  const run = get("run"), machine = get("environment");
  const parts = (run.definition ?? "Waiting for the run").split(/(?<=_)/);
  $("title").replaceChildren(...parts.flatMap((part) => [part, el("wbr")]));
  $("run-id").textContent = run.run ?? "";
  $("subtitle").textContent = [`on ${run.target}`, machine.device, `agent ${run.agent}`, `promotions: ${run.mode === "ask" ? "a person decides" : "automatic"}`].filter(Boolean).join(" · ");
  document.title = `${run.state === "running" ? "● " : ""}${run.definition} – kopt`;
  const pill = $("state");
  if (pill.dataset.state !== run.state) {
    pill.dataset.state = run.state;
    pill.textContent = STATES[run.state] ?? run.state;
  }
  $("foot").textContent = [machine.kopt && `kopt ${machine.kopt}`, machine.python && `Python ${machine.python}`, machine.driver && `driver ${machine.driver}`, machine.epoch && `epoch ${machine.epoch}`, count(run.records ?? 0, "record")].filter(Boolean).join(" · ");
  $("steer").querySelector("button").disabled = run.state === "finished" || run.state === "gone";
}

function figures() {
  const run = get("run"), all = named("candidate/"), closed = named("round/").filter((r) => r.decision);
  const open = named("round/").at(-1);
  const best = bestOf(all);
  const verdicts = Object.entries(run.verdicts ?? {}).map(([name, n]) => `${n.toLocaleString("en")} ${name}`).join(", ");
  const passed = all.filter((each) => each.passed).length;
  const incumbent = closed.filter((r) => r.applied).at(-1)?.incumbent ?? run.incumbent?.name;
  show($("figures"), [
    ["Round", open ? `${open.round}` : "–", `of ${(run.first_round ?? 1) + (run.rounds_planned ?? 1) - 1}, ${closed.length} closed`],
    ["Best so far", best ? ratio(best.relative) : "–", best ? `of the first incumbent's time: ${best.name}` : "none is faster beyond its interval"],
    ["Incumbent", incumbent ?? "–", closed.length ? count(closed.filter((r) => r.applied).length, "promotion") : ""],
    ["Candidates", all.length.toLocaleString("en"), `${passed} passed the gate`],
    ["Evaluations", (run.evaluations ?? 0).toLocaleString("en"), verdicts],
    ["Time", elapsed(), run.state === "running" ? `since ${clock(run.created)}` : `from ${clock(run.created)}`],
  ]);
}

function show(list, entries) {
  list.replaceChildren(...entries.map(([name, value, note]) => el("div", {}, el("dt", {}, name), el("dd", { "data-figure": name, class: name === "Incumbent" ? "name" : null }, value, note ? el("small", {}, note) : null))));
}

function elapsed() {
  const run = get("run");
  if (!run.created) return "–";
  const end = run.state === "running" ? Date.now() : Date.parse(run.last?.time ?? run.created);
  return duration((end - Date.parse(run.created)) / 1000);
}

function bestOf(all) {
  return all.filter((c) => c.passed && c.faster).reduce((best, c) => (best && best.relative <= c.relative ? best : c), null);
}

// What is going on

const STEPS = ["state", "candidates", "gate", "sweep", "validation"];
const TITLES = { state: "State", candidates: "Candidates", gate: "Gate", sweep: "Sweep", validation: "Validation" };

function now() {
  const run = get("run"), at = get("now"), round = named("round/").at(-1);
  const running = run.state === "running";
  const place = STEPS.indexOf(at.stage);
  const over = !running || (round && round.decision);
  $("steps").replaceChildren(...STEPS.map((step, index) => el("li", { "aria-current": !over && index === place ? "step" : null, "data-past": index < place || over }, TITLES[step])), el("li", { "data-past": Boolean(over && round?.decision) }, "Decision"));
  $("doing").textContent = doing(run, at, round);
  const done = at.workloads ? Math.min(1, (at.checked + at.timed) / (2 * at.workloads)) : 0;
  const bar = $("bar");
  bar.hidden = !running || !at.workloads;
  bar.setAttribute("aria-valuemax", 100);
  bar.setAttribute("aria-valuenow", Math.round(done * 100));
  bar.firstElementChild.style.width = `${done * 100}%`;
  facts(round);
  workers();
}

function doing(run, at, round) {
  if (!round) return run.state === "running" ? "The run has begun." : "No round has begun.";
  if (run.state !== "running") return run.state === "interrupted" ? `Stopped in round ${round.round}. kopt resume ${run.run} goes on.` : `Ended after round ${round.round}.`;
  if (round.decision) return `Round ${round.round} is closed.`;
  const of = at.workloads ? ` of ${at.workloads}` : "";
  if (at.name) return `Round ${at.round}, ${at.stage} of ${at.name}: ${at.checked}${of} workloads checked, ${at.timed} timed with ${count(at.blocks, "block")}`;
  return at.stage === "candidates" ? `Round ${round.round}: candidates are being built` : `Round ${round.round}: looking at what limits the incumbent`;
}

function facts(round) {
  const entries = [];
  const last = named("round/").filter((each) => each.decision).at(-1);
  const state = get("state");
  if (round?.direction) entries.push(["Direction", round.because ? `${round.direction}: ${round.because}` : round.direction]);
  if (last) entries.push(["State", `most can be won in ${last.regime}, limited by ${last.bottleneck} (from ${last.basis}; round ${last.round})`]);
  for (const each of (state.regimes ?? []).slice(0, 4))
    entries.push([each.regime, [each.time_share === null ? null : `${Math.round(each.time_share * 100)} % of the time`, `limited by ${each.bottleneck}`, each.launch_count === null ? null : count(each.launch_count, "launch", "launches"), each.distance_to_floor === null ? null : `${each.distance_to_floor.toFixed(2)} × its floor`].filter(Boolean).join(", ")]);
  if (!last)
    for (const each of named("profile/").slice(0, 4))
      entries.push([each.axes, [`${microseconds(each.total_us)} µs under the profiler`, each.launches === null ? null : count(each.launches, "launch", "launches"), each.dominant].filter(Boolean).join(", ")]);
  show($("facts"), entries);
}

function workers() {
  const at = Date.now() / 1000;
  $("workers").replaceChildren(...(get("work").workers ?? []).map((each) => el("li", { "data-busy": Boolean(each.doing) }, el("span", {}, `${each.worker}: ${each.doing || "idle"}`), el("time", {}, duration(at - each.since)))));
}

// Charts

let drawnTrajectory = "";

function drawTrajectory() {
  const steered = new Set();
  let before = 0;
  for (const round of named("round/")) {
    if ((round.steers ?? 0) > before) steered.add(round.round);
    before = Math.max(before, round.steers ?? 0);
  }
  const points = named("candidate/").filter((c) => c.verdict !== null).map((c) => ({
    round: c.round,
    value: c.relative,
    ci: c.relative_ci,
    faster: c.passed && c.faster,
    kind: c.relative === null ? "wrong" : c.passed ? "passed" : "refused",
    promoted: c.promoted,
    text: `${c.name}, round ${c.round}: ${c.verdict}, ${c.relative === null ? "not timed" : `${ratio(c.relative)} of the first incumbent's time`}${c.promoted ? ", promoted" : ""}`,
  }));
  const level = named("round/").filter((r) => r.level).at(-1)?.level ?? 1;
  // With hundreds of marks it is the largest part of an update, and few updates move one.
  const key = [$("trajectory").clientWidth, level, [...steered], points.map((p) => [p.value, p.ci, p.kind, p.promoted, p.text])].join();
  if (key === drawnTrajectory) return;
  drawnTrajectory = key;
  trajectory($("trajectory"), points, steered, level);
  const best = bestOf(named("candidate/"));
  $("trajectory-reading").textContent = best ? `Best so far: ${best.name} of round ${best.round}, ${interval(best.relative, best.relative_ci)} of the first incumbent's time. The whiskers are intervals.` : "A candidate sets the line when its whole interval lies below 1.";
}

let chosen = null;

function choosePair() {
  const pairs = [...board.keys()].filter((name) => name.startsWith("pair/")).slice(-40).reverse();
  const select = $("pairs");
  if (pairs.join() !== [...select.options].map((o) => o.value).join())
    select.replaceChildren(...pairs.map((name) => {
      const each = board.get(name);
      return el("option", { value: name }, `round ${each.round}, ${each.stage}: ${each.b}`);
    }));
  if (chosen && board.has(chosen)) select.value = chosen;
  else select.value = pairs.find((name) => board.get(name).history.length || board.get(name).final) ?? pairs[0] ?? "";
  select.closest("label").hidden = !pairs.length;
}

function drawPair() {
  const pair = board.get($("pairs").value);
  shrinking($("interval"), pair);
  const reading = $("interval-reading");
  if (!pair) reading.textContent = "";
  else if (pair.final) reading.textContent = `${pair.final.decision}: ${interval(pair.final.ratio, pair.final.ci)} of the time of ${pair.a} at ${percent(pair.final.confidence)}, after ${count(pair.final.looks, "look")}. Dashed: the margin of ${percent(pair.final.margin)}.`;
  else reading.textContent = pair.history.length ? `So far: ${interval(pair.history.at(-1)[1], pair.history.at(-1).slice(2))} of the time of ${pair.a} at ${percent(pair.confidence)}. Interim: not corrected for repeated looks, and no decision.` : "";
}

const percent = (share) => `${Number((share * 100).toFixed(1))} %`;

// Candidates

const CANDIDATES = [
  { name: "round", title: "Round", class: "num", descending: true },
  { name: "name", title: "Candidate" },
  { name: "direction", title: "Direction", class: "optional" },
  { name: "verdict", title: "Verdict" },
  { name: "gate", title: "Gate" },
  { name: "ratio", title: "Time / incumbent" },
  { name: "what", title: "What" },
];
const FEW = 40;
let all_candidates = false;
const candidateHeads = new Heads($("candidates"), CANDIDATES, "order", true, candidates);

function candidates() {
  const words = $("candidates-search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = named("candidate/").map((each, order) => ({ ...each, order, gate: each.passed === null ? each.stage : each.passed ? "passed" : "not passed" }));
  const found = rows.filter((row) => words.every((word) => `r${row.round} ${row.name} ${row.sha256} ${row.direction} ${row.verdict} ${row.gate} ${row.what} ${row.flags.join(" ")}`.toLowerCase().includes(word)));
  found.sort((a, b) => candidateHeads.compare(a, b));
  const shown = all_candidates ? found : found.slice(0, FEW);
  const ends = shown.filter((row) => row.ratio).flatMap((row) => [row.ratio / 1.3, row.ratio * 1.3]);
  const lo = Math.min(0.8, ...ends), hi = Math.max(1.25, ...ends);
  $("candidates").tBodies[0].replaceChildren(...shown.map((row) => candidateRow(row, lo, hi)));
  const more = $("candidates-more");
  more.replaceChildren();
  if (!rows.length) more.append("No candidate has been proposed yet.");
  else if (found.length !== rows.length) more.append(`${found.length} of ${rows.length} candidates fit the filter. `);
  if (found.length > shown.length) {
    const button = el("button", { type: "button", class: "quiet" }, `Show all ${found.length}`);
    button.addEventListener("click", () => { all_candidates = true; candidates(); });
    more.append(button);
  }
}

function candidateRow(row, lo, hi) {
  const interim = row.basis === "interim" ? "interim" : row.basis;
  return el("tr", {},
    el("td", { class: "num" }, String(row.round)),
    el("td", { class: "wide" }, row.name, el("small", { class: "mono" }, row.sha256.slice(0, 12))),
    el("td", { class: "optional" }, row.direction),
    el("td", { class: "short" }, verdict(row.verdict), row.flags.length ? el("small", {}, `flags: ${row.flags.join(", ")}`) : null),
    el("td", { class: "short" }, row.passed === null ? el("span", { class: "soft" }, row.stage) : verdict(row.gate), row.decision ? el("small", {}, `${row.decision}${row.promoted ? ", applied" : ""}`) : null),
    el("td", { class: "short" }, interval(row.ratio, row.ci), row.ratio ? el("small", {}, interim) : null, row.ratio ? forest(row.ratio, row.ci, lo, hi) : null),
    el("td", {}, row.what || "–", row.verdict && row.verdict !== "pass" ? el("small", {}, row.reason) : null));
}

// Rounds and steers

const FEW_ROUNDS = 12;
let all_rounds = false;
const drawnRounds = new Map();

function rounds() {
  const found = named("round/").reverse();
  const shown = all_rounds ? found : found.slice(0, FEW_ROUNDS);
  const items = shown.map((round) => {
    const before = drawnRounds.get(round.round);
    if (before?.of === round) return before.item;
    const item = roundItem(round, before?.item.querySelector("details")?.open);
    drawnRounds.set(round.round, { of: round, item });
    return item;
  });
  const list = $("rounds");
  if (items.length !== list.children.length || items.some((item, index) => item !== list.children[index])) list.replaceChildren(...items);
  const more = $("rounds-more");
  more.replaceChildren();
  if (!found.length) more.append("No round has begun.");
  if (found.length > shown.length) {
    const button = el("button", { type: "button", class: "quiet" }, `Show all ${found.length}`);
    button.addEventListener("click", () => { all_rounds = true; rounds(); });
    more.append(button);
  }
}

function roundItem(round, open) {
  const item = el("li", { value: round.round });
  const decided = round.decision;
  item.append(el("p", {}, el("span", { class: "label" }, `Round ${round.round}`), " ", decided ? verdict(decided.label) : el("span", { class: "soft" }, "under way")));
  if (!decided) {
    item.append(el("p", { class: "soft" }, `since ${clock(round.began)}${round.direction ? `, direction ${round.direction}` : ""}`));
    return item;
  }
  item.append(el("p", {}, decided.reason), el("p", { class: "soft" }, `${round.title}: ${count(round.candidates, "candidate")}${round.refused ? `, ${round.refused} refused unmeasured` : ""}, ${duration((Date.parse(round.ended) - Date.parse(round.began)) / 1000)}`));
  for (const text of [round.promotion, ...round.signals, ...round.notes].filter(Boolean)) item.append(el("p", { class: "soft" }, text));
  if (decided.evidence.length) {
    const failed = decided.evidence.filter((each) => !each.ok).length;
    const list = el("dl");
    for (const each of decided.evidence) list.append(el("dt", {}, verdict(each.ok ? "pass" : "not met")), el("dt", {}, each.name), el("dd", {}, `${each.measured} (required: ${each.required})`));
    item.append(el("details", { open: open ?? false }, el("summary", {}, `${decided.evidence.length} conditions, ${failed ? `${failed} not met` : "all met"}`), list));
  }
  return item;
}

function said() {
  const taken = named("round/").reduce((most, round) => Math.max(most, round.steers ?? 0), 0);
  const steers = named("steer/").reverse();
  $("said").replaceChildren(...steers.map((each) => el("li", {}, el("time", { datetime: each.time }, clock(each.time)), `${each.kind} ${each.value}`, el("small", {}, `${each.by ? ` by ${each.by}` : ""}, ${each.number < taken ? "taken by a round" : "waits for the next round"}`))));
  if (!steers.length) $("said").append(el("li", { class: "soft" }, "Nothing yet."));
}

function options(form) {
  const found = {};
  for (const [name, value] of new FormData(form)) if (value.trim()) found[name] = name === "stop" ? "a person" : value.trim();
  return found;
}

async function steer(event) {
  event.preventDefault();
  const form = $("steer"), answer = $("steer-answer"), button = form.querySelector("button");
  button.disabled = true;
  answer.textContent = "";
  try {
    const response = await fetch("steer", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ run: get("run").run, options: options(form) }) });
    const found = await response.json();
    answer.textContent = response.ok ? `Said: ${found.added.join("; ")}` : `${found.error}: ${found.hint}`;
    if (response.ok) form.reset();
  } catch {
    answer.textContent = "The server did not answer; nothing may have been said.";
  }
  button.disabled = get("run").state === "finished";
}

// Evaluations: the rows stay with the server

const EVALUATIONS = [
  { name: "number", title: "#", class: "num", descending: true },
  { name: "time", title: "Time", class: "optional", descending: true },
  { name: "round", title: "Round", class: "num", descending: true },
  { name: "stage", title: "Stage" },
  { name: "candidate", title: "Candidate" },
  { name: "axes", title: "Axes" },
  { name: "verdict", title: "Verdict" },
  { name: "trials", title: "Trials", class: "num optional", descending: true },
  { name: "median_us", title: "Median, µs", class: "num" },
  { name: "uuid", title: "Workload" },
];
const ROWS = 25;
let offset = 0, wanted = 0;
const evaluationHeads = new Heads($("evaluations"), EVALUATIONS, "number", true, () => { offset = 0; fetchEvaluations(); });
const refreshEvaluations = throttled(400, fetchEvaluations);

function throttled(milliseconds, act) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => { waiting = false; act(); }, milliseconds);
  };
}

async function fetchEvaluations() {
  const mine = (wanted += 1);
  const parameters = new URLSearchParams({ sort: evaluationHeads.sort, descending: evaluationHeads.descending ? "1" : "0", offset, limit: ROWS, search: $("evaluations-search").value });
  if (asked) parameters.set("run", asked);
  let found;
  try {
    const response = await fetch(`evaluations?${parameters}`);
    if (!response.ok) return;
    found = await response.json();
  } catch {
    return; // The stream says that the connection is lost, and asks again.
  }
  if (mine !== wanted) return;
  $("evaluations").tBodies[0].replaceChildren(...found.rows.map(evaluationRow));
  const last = Math.min(offset + ROWS, found.found);
  const of = found.found === found.total ? count(found.total, "evaluation") : `${found.found.toLocaleString("en")} that fit, of ${found.total.toLocaleString("en")}`;
  $("evaluations-more").textContent = found.found ? `${offset + 1} to ${last} of ${of}` : found.total ? "Nothing fits the filter." : "No workload has been checked yet.";
  $("before").disabled = offset === 0;
  $("after").disabled = last >= found.found;
}

function evaluationRow([number, time, round, stage, candidate, sha256, uuid, axes, text, phase, trials, median_us]) {
  return el("tr", {},
    el("td", { class: "num" }, String(number)),
    el("td", { class: "short optional" }, clock(time)),
    el("td", { class: "num" }, String(round)),
    el("td", {}, stage),
    el("td", { title: sha256 }, candidate),
    el("td", { class: "short" }, axes),
    el("td", { class: "short" }, verdict(text), text === "pass" ? null : el("small", {}, `in ${phase}`)),
    el("td", { class: "num optional" }, trials === null ? "–" : String(trials)),
    el("td", { class: "num" }, microseconds(median_us)),
    el("td", { class: "short" }, el("code", {}, uuid.slice(0, 8))));
}

// What does not change with the run

async function chooseRun() {
  const found = await (await fetch("runs")).json();
  const select = $("runs");
  const current = asked ?? get("run").run;
  select.replaceChildren(...found.runs.map((each) => el("option", { value: each.run, selected: each.run === current }, each.run)));
}

async function offerChoices() {
  const found = await (await fetch("choices")).json();
  const form = $("steer");
  const fill = (name, entries) => form.elements[name].replaceChildren(el("option", { value: "" }, "–"), ...entries.map(([value, text]) => el("option", { value }, text)));
  const directions = found.directions.map((each) => [each.id, `${each.id}: ${each.title}`]);
  fill("recommend", directions);
  fill("block", directions);
  fill("agent", found.agents.map((name) => [name, name]));
  fill("language", found.languages.map((name) => [name, name]));
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").textContent = name === "dark" ? "Light" : "Dark";
  $("theme").setAttribute("aria-pressed", name === "dark" ? "true" : "false");
}

const system = matchMedia("(prefers-color-scheme: dark)");
theme(system.matches ? "dark" : "light");
system.addEventListener("change", () => theme(system.matches ? "dark" : "light"));
$("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
$("runs").addEventListener("change", () => { location.search = `?run=${encodeURIComponent($("runs").value)}`; });
$("pairs").addEventListener("change", () => { chosen = $("pairs").value; drawPair(); });
$("candidates-search").addEventListener("input", later(80, candidates));
$("evaluations-search").addEventListener("input", later(120, () => { offset = 0; fetchEvaluations(); }));
$("before").addEventListener("click", () => { offset = Math.max(0, offset - ROWS); fetchEvaluations(); });
$("after").addEventListener("click", () => { offset += ROWS; fetchEvaluations(); });
$("steer").addEventListener("submit", steer);
new ResizeObserver(later(60, () => { drawTrajectory(); drawPair(); })).observe($("main"));
setInterval(() => {
  if (get("run").state !== "running") return;
  workers();
  for (const each of document.querySelectorAll('[data-figure="Time"]')) each.firstChild.textContent = elapsed();
}, 1000);
setInterval(chooseRun, 30000);

legend($("trajectory-legend"));
listen();
offerChoices();
window.addEventListener("drawn", chooseRun, { once: true });
