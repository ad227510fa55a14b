// Tables that sort, a word where something is wider than the screen, and curves with values under the cursor.
"use strict";
(() => {
  // --- tables

  // "−0.42", "1,234 (1,200–1,300)", "62.5 %" and "seed 3" are sorted by their first number.
  const number = (text) => {
    const found = text.replace(/−/g, "-").replace(/,(?=\d{3})/g, "").match(/^\D{0,6}?([+-]?\d+(\.\d+)?)/);
    return found ? parseFloat(found[1]) : NaN;
  };

  const sort = (table, column, isDown) => {
    const text = (row) => (row.cells[column] ? row.cells[column].textContent.trim() : "");
    const rows = Array.from(table.tBodies[0].rows);
    rows.sort((one, other) => {
      const [a, b] = [number(text(one)), number(text(other))];
      if (isNaN(a) !== isNaN(b)) return isNaN(a) ? 1 : -1; // Cells without a number always come last.
      const order = isNaN(a) ? text(one).localeCompare(text(other)) : a - b;
      return isDown ? -order : order;
    });
    table.tBodies[0].append(...rows);
  };

  for (const table of document.querySelectorAll("table")) {
    if (!table.tHead || !table.tBodies.length) continue;
    for (const cell of table.tBodies[0].querySelectorAll("td")) {
      if (cell.textContent.length > 40) cell.classList.add("long");
    }
    if (table.tBodies[0].rows.length < 2) continue;
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      const start = () => {
        const isDown = head.getAttribute("aria-sort") === "ascending";
        heads.forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
        sort(table, column, isDown);
      };
      head.classList.add("sorts");
      head.tabIndex = 0;
      head.title = "Sort by this column";
      head.addEventListener("click", start);
      head.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); start(); }
      });
    });
  }

  // --- what is wider than the screen

  const look = () => {
    for (const box of document.querySelectorAll(".scroll")) {
      const isCut = box.scrollWidth > box.clientWidth + 1;
      let hint = box.previousElementSibling;
      if (!hint || !hint.classList.contains("hint")) {
        if (!isCut) continue;
        hint = document.createElement(box.tagName);
        hint.className = "hint";
        hint.style.display = "block";
        const what = box.querySelector("table") ? "This table" : "This figure";
        hint.textContent = `${what} is wider than the screen: swipe or scroll it to the side. →`;
        box.before(hint);
        box.tabIndex = 0;
      }
      hint.hidden = !isCut;
      hint.style.display = isCut ? "block" : "none";
    }
  };
  look();
  window.addEventListener("load", look);
  window.addEventListener("resize", look);

  // --- curves

  const NEAR_PIXELS = 40;
  const font = "13px system-ui, sans-serif";

  const draw = (box) => {
    const data = JSON.parse(box.querySelector("script").textContent);
    const place = box.querySelector(".chart"), values = box.querySelector(".values");
    const choice = box.querySelector("select");
    const usual = values.textContent;
    let chart = null;

    const say = (plot) => {
      const { left, top } = plot.cursor;
      let best = null, least = NEAR_PIXELS ** 2;
      if (left >= 0) {
        plot.series.forEach((series, s) => {
          if (s === 0 || !series.show) return;
          plot.data[s].forEach((y, i) => {
            if (y == null) return;
            const dx = plot.valToPos(plot.data[0][i], "x") - left, dy = plot.valToPos(y, "y") - top;
            if (dx * dx + dy * dy < least) { least = dx * dx + dy * dy; best = [s, i]; }
          });
        });
      }
      if (!best) { values.textContent = usual; return; }
      const [s, i] = best, line = data.lines[s - 1], axis = data.axes[choice.value];
      const at = plot.data[0][i].toLocaleString("en", { maximumSignificantDigits: 5 });
      const isLast = i === plot.data[s].reduce((last, y, k) => (y == null ? last : k), -1);
      values.textContent = `${line.label}, seed ${line.seed}: ${plot.data[s][i].toFixed(2)} % at ${at} ` +
        `(${axis})${isLast ? ", the final evaluation" : ""}`;
    };

    // On an axis with less than this span, a small difference would look large.
    const range = (plot, low, high) => {
      if (low == null) return [low, high];
      const more = Math.max(0, data.least_span - (high - low)) / 2;
      return uPlot.rangeNum(low - more, high + more, 0.1, true);
    };

    const show = () => {
      const axis = Number(choice.value);
      const lines = data.lines.map((line) => {
        const known = line.x[axis].map((x, i) => [x, line.y[i]]).filter(([x]) => x != null);
        return [known.map((one) => one[0]), known.map((one) => one[1])];
      });
      const isHidden = (label) => !box.querySelector(`input[data-row="${CSS.escape(label)}"]`).checked;
      if (chart) chart.destroy();
      const width = place.clientWidth;
      chart = new uPlot({
        width, height: Math.max(220, Math.min(360, width * 0.55)),
        legend: { show: false },
        cursor: { points: { size: 9 }, drag: { x: true, y: true, uni: 20 } },
        scales: { x: { time: false }, y: { range } },
        axes: [
          { label: data.axes[axis], labelSize: 22, font, labelFont: font, grid: { stroke: "#e4e4e4", width: 1 } },
          { label: data.label, labelSize: 22, font, labelFont: font, size: 46, grid: { stroke: "#e4e4e4", width: 1 } },
        ],
        series: [{}, ...data.lines.map((line) => ({
          label: line.label, stroke: line.colour, width: 1.5, spanGaps: true, show: !isHidden(line.label),
          points: { show: true, size: 4, fill: line.colour },
        }))],
        hooks: { setCursor: [say] },
      }, uPlot.join(lines), place);
    };

    choice.addEventListener("change", show);
    for (const input of box.querySelectorAll("input")) input.addEventListener("change", show);
    let width = place.clientWidth;
    show();
    new ResizeObserver(() => {
      if (place.clientWidth !== width) { width = place.clientWidth; show(); }
    }).observe(box);
  };

  document.querySelectorAll(".curves").forEach(draw);
})();
