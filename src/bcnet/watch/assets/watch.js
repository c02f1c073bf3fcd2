"use strict";
// Asks for every run in turn, and shows what is new. Texts of runs are put in as text, never as markup.
(() => {
  const OFTEN = 1000, RARELY = 5000; // milliseconds between two questions about a run that runs, and about one that does not
  const ERRORS_ONLY = 1; // of Vega's levels
  const OPTIONS = { renderer: "svg", actions: false, logLevel: ERRORS_ONLY, tooltip: { theme: "custom" } };
  const runs = [];

  const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
  const visible = () => new Promise((resolve) => {
    if (!document.hidden) resolve();
    else document.addEventListener("visibilitychange", () => resolve(visible()), { once: true });
  });

  async function ask(address) {
    for (;;) {
      await visible();
      try {
        const answer = await fetch(address);
        if (!answer.ok) throw new Error(await answer.text());
        const found = await answer.json();
        document.getElementById("lost").hidden = true;
        return found;
      } catch {
        document.getElementById("lost").hidden = false;
        await pause(RARELY);
      }
    }
  }

  const hours = (seconds) => {
    const all = Math.max(0, Math.round(seconds));
    const two = (number) => String(number).padStart(2, "0");
    return `${Math.floor(all / 3600)}:${two(Math.floor(all / 60) % 60)}:${two(all % 60)}`;
  };
  const count = (number) => number.toLocaleString("en");

  class Run {
    constructor(number) {
      this.number = number;
      this.place = document.getElementById("run").content.firstElementChild.cloneNode(true);
      this.place.id = `run-${number}`;
      this.find(".link a").href = `runs/${number}/report`;
      document.getElementById("runs").append(this.place);
      this.forget();
    }

    find(selector) { return this.place.querySelector(selector); }

    say(selector, text) { this.find(selector).textContent = text; }

    forget() {
      this.known = 0;
      this.front = [];
      this.views = {};
    }

    async follow() {
      for (;;) {
        const told = await ask(`runs/${this.number}.json?known=${this.known}`);
        if (this.known && told.first === 0) this.forget(); // begun anew: all is told from the start
        await this.show(told);
        this.state = told.status.state;
        this.drawn = true;
        summarise();
        if (told.more) continue;
        await pause(this.state === "running" ? OFTEN : RARELY);
      }
    }

    async show(told) {
      const { status } = told;
      this.say(".name", told.name ?? status.folder);
      this.say(".state", status.state);
      this.find(".state").dataset.state = status.state;
      this.say(".folder", told.budget ? `${status.folder}, budget ${told.budget}` : status.folder);
      this.say(".ends", this.ends(status));
      this.say(".best", this.best(status, told));
      this.say(".tested", Object.entries(status.result ?? {})
        .map(([name, n]) => `${name} ${n.headline} at ${n.macs_ratio.toFixed(3)} of the MACs`).join(", "));
      this.say(".process", this.process(told.process, status));
      this.find(".link").hidden = !(status.stages ?? []).length;
      this.find(".problems").replaceChildren(...(status.problems ?? []).map((text) => {
        const item = document.createElement("li");
        item.textContent = text;
        return item;
      }));
      this.find(".stages").replaceChildren(...(status.stages ?? []).map((stage) => this.stage(stage, status)));
      if (told.charts) await this.draw(told.charts);
      for (const name of ["supernet", "networks"]) await this.replace(name, name, told.losses?.[name]);
      await this.add(told.candidates ?? []);
    }

    ends(status) {
      if (status.state === "empty") return "Nothing has been started here yet.";
      if (status.state === "stopped") return "Stopped: the same command goes on with it.";
      if (status.state === "in part") return "What was asked for is done, and more can go on from it.";
      if (status.state === "failed") return `Failed: ${status.message}`;
      if (status.state !== "running") return "";
      if (status.ends === null) return "Ends: too little measured yet.";
      const at = new Date(status.ends * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      return `Ends in about ${hours(status.ends - Date.now() / 1000)}, at ${at}.`;
    }

    best(status, told) {
      if (status.evaluations === null || status.evaluations === undefined) return "";
      const so_far = `${count(status.evaluations)} candidates scored`;
      if (!status.best) return `${so_far}, none within the budget yet.`;
      const row = (told.candidates ?? []).find((r) => r.widths.join() === status.best.widths.join());
      if (row) this.text = row.text;
      return `${so_far}; the best within the budget: ${this.text ?? status.best.score.toPrecision(4)} at ` +
        `${count(status.best.macs)} MACs${status.best_ratio ? ` (${status.best_ratio.toFixed(3)} of the original)` : ""}.`;
    }

    process(process, status) {
      if (!process) return "";
      const now = Date.now() / 1000, before = this.before;
      this.before = { pid: process.pid, now, used: process.cpu_seconds };
      const cores = before && before.pid === process.pid && now > before.now
        ? `, ${((process.cpu_seconds - before.used) / (now - before.now)).toFixed(1)} cores` : "";
      return `Process ${process.pid}${status.host ? ` on ${status.host}` : ""}: ${process.memory}${cores}, ` +
        `${process.threads} threads.`;
    }

    stage(stage, status) {
      const item = document.createElement("li");
      item.className = stage.state.replace(" ", "-");
      const name = document.createElement("span"), bar = document.createElement("progress"), text = document.createElement("span");
      name.textContent = stage.name;
      bar.max = Math.max(1, stage.total);
      bar.value = stage.state === "finished" ? bar.max : stage.done;
      bar.setAttribute("aria-label", stage.name);
      const left = status.stage_left === null ? "" : `, ${hours(status.stage_left)} left`;
      const done = `${count(stage.done)} of ${count(stage.total)} ${stage.unit}`;
      text.textContent = stage.state === "finished" ? "finished"
        : stage.state === "at hand" ? `${done}${left}${stage.detail ? `, ${stage.detail}` : ""}`
          : stage.done ? done : "to come";
      item.append(name, bar, text);
      return item;
    }

    async draw(charts) {
      for (const [name, chart] of Object.entries(charts)) {
        if (this.views[name]) continue;
        const figure = this.find(`figure.${name}`);
        figure.hidden = false; // a hidden place has no width to draw into
        this.views[name] = (await vegaEmbed(figure.querySelector(".chart"), chart, OPTIONS)).view;
        figure.hidden = true;
      }
    }

    async replace(name, data, rows) {
      const view = this.views[name];
      if (!view || !rows || !rows.length) return;
      const last = rows[rows.length - 1], mark = `${rows.length} ${last.stage} ${last.epoch}`;
      if (view.mark === mark) return;
      view.mark = mark;
      this.find(`figure.${name}`).hidden = false;
      await view.data(data, rows).resize().runAsync();
    }

    // Candidates are added, never drawn again; the few on the front are.
    async add(rows) {
      const view = this.views.candidates;
      if (!rows.length || !view) return;
      this.known += rows.length;
      this.find("figure.candidates").hidden = false;
      view.insert("candidates", rows);
      const able = [...this.front, ...rows.filter((row) => row.within && !row.stopped)];
      able.sort((one, two) => one.macs - two.macs || two.score - one.score);
      let best = -Infinity;
      this.front = able.filter((row) => row.score > best && ((best = row.score), true)).map((row) => ({ ...row, front: true }));
      await view.data("front", this.front).resize().runAsync();
    }
  }

  // One finished run is its report; of several the report is a link away, and so is their comparison.
  function summarise() {
    const finished = runs.every((run) => run.state === "finished");
    if (finished && runs.length === 1) location.replace("runs/0/report");
    document.getElementById("compare").hidden = !(finished && runs.length > 1);
    if (runs.every((run) => run.drawn)) document.documentElement.dataset.drawn = "yes";
  }

  async function followMachine(machine) {
    for (;;) {
      document.getElementById("machine").textContent =
        `${machine.cores} cores ${machine.cpu.toFixed(0)} % busy, load ${machine.load}, ` +
        `memory ${machine.memory} of ${machine.memory_total}, ${machine.disk_free} of disk free`;
      await pause(2 * OFTEN);
      machine = await ask("machine.json");
    }
  }

  async function start() {
    const machine = await ask("machine.json");
    for (let number = 0; number < machine.runs; number++) runs.push(new Run(number));
    for (const run of runs) run.follow();
    followMachine(machine);
  }

  start();
})();
