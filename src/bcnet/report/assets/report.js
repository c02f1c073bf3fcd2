"use strict";
// Draws every chart in its place, and lets candidates be picked: by a click on a dot, or in the menu.
(() => {
  const ERRORS_ONLY = 1; // of Vega's levels
  const { charts, groups, reference } = JSON.parse(document.getElementById("data").textContent);
  const options = { renderer: "svg", actions: false, logLevel: ERRORS_ONLY, tooltip: { theme: "custom" } };
  const views = {};

  async function draw(place) {
    const name = place.dataset.chart;
    views[name] = (await vegaEmbed(place, charts[name], options)).view;
  }

  function showProfile(candidate) {
    const rows = groups.map((group, g) => ({
      ...group, width: candidate.widths[g], ratio: candidate.widths[g] / group.full,
    }));
    views.candidates.data("picked", [candidate]).run();
    views.profile.data("profile", rows).run();
    const count = (number) => number.toLocaleString("en");
    document.getElementById("picked").textContent =
      `candidate ${candidate.number}, generation ${candidate.generation}: score ${candidate.text}, ` +
      `${count(candidate.macs)} MACs (${(candidate.macs / reference).toFixed(3)} of the original), ` +
      `${count(candidate.params)} parameters`;
  }

  function listenForPicks(candidates) {
    const menu = document.getElementById("pick");
    menu.addEventListener("change", () => showProfile(candidates[Number(menu.value)]));
    views.candidates.addEventListener("click", (event, item) => {
      const number = item && item.datum && item.datum.number;
      if (number === undefined) return;
      menu.querySelector("option.clicked")?.remove();
      let option = [...menu.options].find((o) => Number(o.value) === number);
      if (!option) {
        option = new Option(`candidate ${number}`, number);
        option.className = "clicked";
        menu.add(option);
      }
      menu.value = String(number);
      showProfile(candidates[number]);
    });
    showProfile(candidates[Number(menu.value)]);
  }

  async function drawAll() {
    await Promise.all([...document.querySelectorAll("[data-chart]")].map(draw));
    if (views.candidates && groups) listenForPicks(charts.candidates.data.values);
    document.documentElement.dataset.drawn = "yes";
  }

  drawAll();
})();
