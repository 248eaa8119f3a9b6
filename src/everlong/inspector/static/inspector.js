// Everlong's inspector: keyboard, chart, live updates and pages that follow each other. Reading works without it.
"use strict";
(() => {
  const base = document.body.dataset.base;

  // -- rows: j and k go from one to the next, Enter opens it ---------------------------------------------------------
  let current = -1;
  const rows = () => [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
  function go(step) {
    const all = rows();
    if (!all.length) return;
    const marked = all.findIndex((row) => row.classList.contains("current"));
    const from = marked >= 0 ? marked : firstVisible(all) - (step > 0 ? 1 : 0);
    current = Math.max(0, Math.min(all.length - 1, from + step));
    document.querySelectorAll(".current").forEach((row) => row.classList.remove("current"));
    all[current].classList.add("current");
    all[current].scrollIntoView({ block: "nearest" });
  }
  function firstVisible(all) {
    const place = all.findIndex((row) => row.getBoundingClientRect().bottom > 0);
    return place < 0 ? 0 : place;
  }
  function openCurrent() {
    const row = document.querySelector("[data-row].current");
    if (!row) return false;
    if (row.tagName === "DETAILS") { row.open = !row.open; return true; }
    const link = row.querySelector("a[href]");
    if (link) { link.click(); return true; }
    const folded = row.querySelector("details");
    if (folded) { folded.open = !folded.open; return true; }
    return false;
  }
  const help = document.getElementById("help");
  const toggleHelp = () => (help.open ? help.close() : help.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "Escape" && typing) { event.target.blur(); return; }
    if (typing) return;
    const find = document.getElementById("find");
    const actions = {
      "/": () => find.focus(), "?": toggleHelp, j: () => go(1), k: () => go(-1), g: () => { location.href = `${base}/`; },
    };
    if (actions[event.key]) { event.preventDefault(); actions[event.key](); return; }
    if (event.key === "Enter" && !event.target.closest("a, button, summary") && openCurrent()) event.preventDefault();
    const tab = document.querySelector(`[data-tab="${CSS.escape(event.key)}"]`);
    if (tab) { event.preventDefault(); tab.click(); }
  });
  document.querySelectorAll("[data-help]").forEach((button) => { button.hidden = false; button.addEventListener("click", toggleHelp); });

  // -- copy buttons ---------------------------------------------------------------------------------------------------
  document.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = false; });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-message]");
    if (!button) return;
    const words = () => [...button.closest("article").querySelectorAll(".words, pre")].map((one) => one.innerText.trim());
    await navigator.clipboard.writeText(button.dataset.copy ?? words().join("\n\n"));
    const before = button.textContent;
    button.textContent = document.body.dataset.copied;
    setTimeout(() => { button.textContent = before; }, 1500);
  });

  // -- pages of a transcript: the next one is put in place, and at most three stay -------------------------------------
  const MOST_PAGES = 3;
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("a[data-go]");
    const pages = document.getElementById("pages");
    if (!link || !pages || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const wanted = Number(new URL(link.href).searchParams.get("page"));
    const known = pages.querySelector(`[data-page="${wanted}"]`);
    if (known) { known.scrollIntoView(); return; }
    try {
      const answer = await fetch(link.href, { headers: { "HX-Request": "true" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const made = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("section.page");
      const isNext = link.dataset.go === "next";
      const anchor = isNext ? null : pages.firstElementChild;
      const before = anchor ? anchor.getBoundingClientRect().top : 0;
      pages.insertBefore(made, anchor);
      while (pages.children.length > MOST_PAGES) (isNext ? pages.firstElementChild : pages.lastElementChild).remove();
      if (anchor) window.scrollBy(0, anchor.getBoundingClientRect().top - before);
      if (window.htmx) window.htmx.process(made);
      history.replaceState(null, "", link.href);
      if (isNext) made.scrollIntoView();
    } catch { location.href = link.href; }
  });

  // -- a transcript opens where its reader left it ---------------------------------------------------------------------
  const transcript = document.getElementById("pages");
  if (transcript) {
    const place = `everlong:${location.pathname}`;
    const left = localStorage.getItem(place);
    if (left && !location.search && !location.hash) location.replace(`${location.pathname}?turn=${left}`);
    let waiting = 0;
    window.addEventListener("scroll", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        const seen = [...document.querySelectorAll("article.message[id]")].find((one) => one.getBoundingClientRect().bottom > 0);
        const isAtEnd = window.innerHeight + window.scrollY >= document.body.scrollHeight - 40;
        if (isAtEnd) localStorage.removeItem(place);  // the newest page is where one ends anyway
        else if (seen) localStorage.setItem(place, seen.id.slice(1));
      }, 300);
    }, { passive: true });
  }

  // -- live: an event says that the store has changed, and what listens for it looks again -----------------------------
  const note = document.querySelector("[data-live-note]");
  if (document.querySelector("[hx-trigger*='everlong:change']") && "EventSource" in window) {
    const events = new EventSource(`${base}/live`);
    events.addEventListener("open", () => { if (note) note.hidden = false; });
    events.addEventListener("change", () => document.body.dispatchEvent(new Event("everlong:change")));
    window.addEventListener("pagehide", () => events.close());
  }

  // -- the chart ------------------------------------------------------------------------------------------------------
  const chart = document.getElementById("chart");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const format = (value) => (value == null ? "–" : value.toLocaleString("en"));
  function draw(data) {
    const words = chart.dataset;
    const flat = (value) => data.request.map(() => value);
    const columns = [data.request, data.prompt];
    const tokens = { scale: "tokens", value: (_, value) => format(value) };
    const series = [
      { label: words.request },
      { ...tokens, label: words.prompt, stroke: colour("--c-tail"), width: 2, fill: `${colour("--c-tail")}22` },
    ];
    const add = (values, one) => { columns.push(values); series.push(one); };
    const isThere = (values) => values.some(Boolean);  // a line along the bottom says nothing
    if (isThere(data.read)) add(data.read, { ...tokens, label: words.read, stroke: colour("--c-summary"), width: 1.5 });
    if (isThere(data.written)) add(data.written, { ...tokens, label: words.written, stroke: colour("--c-tools"), width: 1.5 });
    const hasCost = isThere(data.cost);
    if (hasCost) add(data.cost, { scale: "cost", label: words.cost, stroke: colour("--c-memory"), width: 1, dash: [2, 3], value: (_, value) => (value == null ? "" : `$${value.toFixed(4)}`) });
    const largest = Math.max(...data.prompt);
    for (const name of ["threshold", "window"]) {
      if (!data[name]) continue;
      // A line far above everything would squeeze it; a click on its name still shows it.
      add(flat(data[name]), { ...tokens, label: words[name], stroke: colour(name === "window" ? "--quiet" : "--bad"), width: 1, dash: [6, 4], show: name === "threshold" && data[name] <= 2 * largest });
    }
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const short = (value) => (value >= 1e6 ? `${value / 1e6}M` : value >= 1e3 ? `${value / 1e3}k` : value);
    const marks = (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.strokeStyle = colour("--bad");
      ctx.setLineDash([5, 5]);
      for (const mark of data.compactions) {
        const x = Math.round(plot.valToPos(mark.at - 0.5, "x", true));
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    };
    const options = {
      width: chart.clientWidth, height: 320,
      scales: { x: { time: false, range: (_, low, high) => [low, Math.max(high, low + 1)] }, tokens: { range: (_, low, high) => [0, high * 1.05] }, cost: { range: (_, low, high) => [0, Math.max(high, 1e-6) * 1.6] } },
      series,
      axes: [
        { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000] },
        { ...axis, scale: "tokens", values: (_, ticks) => ticks.map(short), size: 60 },
        ...(hasCost ? [{ ...axis, scale: "cost", side: 1, grid: { show: false }, values: (_, ticks) => ticks.map((tick) => `$${+tick.toPrecision(2)}`), size: 70 }] : []),
      ],
      cursor: { points: { size: 6 } },
      legend: { live: false },  // the line below the chart tells the figures
      hooks: { draw: [marks], setCursor: [(plot) => tell(plot, data)] },
    };
    chart.replaceChildren();
    const plot = new window.uPlot(options, columns, chart);
    plot.over.style.cursor = "pointer";
    plot.over.addEventListener("click", () => {
      const turn = plot.cursor.idx == null ? null : data.turn[plot.cursor.idx];
      if (turn) location.href = `${words.link}/transcript?turn=${turn}`;
    });
    new ResizeObserver(() => plot.setSize({ width: chart.clientWidth, height: 320 })).observe(chart);
  }
  function tell(plot, data) {
    const place = plot.cursor.idx;
    const line = document.getElementById("chart-note");
    if (place == null || !line) return;
    const near = data.compactions.find((mark) => Math.abs(mark.at - data.request[place]) <= 1);
    const compaction = near ? ` · ${chart.dataset.compaction} ${near.number}: ${format(near.before)} → ${format(near.after)}` : "";
    line.textContent = `${chart.dataset.request} ${data.request[place]} · ${data.model[place]} · ${chart.dataset.prompt} ${format(data.prompt[place])} · ${chart.dataset.read} ${format(data.read[place])}${data.seconds[place] == null ? "" : ` · ${data.seconds[place]} s`}${data.cost[place] ? ` · $${data.cost[place]}` : ""}${compaction}`;
  }
  if (chart && window.uPlot) {
    chart.querySelector("[data-drawing]").hidden = false;
    fetch(chart.dataset.src).then((answer) => answer.json()).then((data) => {
      if (data.request.length < 2) { chart.remove(); return; }  // one point is no line
      draw(data);
      window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(data));
    }).catch(() => chart.remove());
  }
})();
