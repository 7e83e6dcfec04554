"use strict";
// Draws the charts anew where a control changes; without it the page shows the same charts, drawn by levin.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const LEFT = 48, RIGHT = 12, TOP = 10, BOTTOM = 26;  // as in chart_svg.cpp
  const state = {smoothing: 0.6, axis: "step", log: false, all: false, hidden: new Set()};

  // ---- numbers -----------------------------------------------------------------------------------------------------

  const shown = (value) => {
    if (!Number.isFinite(value)) return "–";
    const size = Math.abs(value);
    if (value !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(3);
    return String(Number(value.toPrecision(4)));
  };

  const duration = (seconds) => {
    const s = Math.round(seconds);
    if (s < 60) return `${Number(seconds.toPrecision(3))} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
    return `${Math.floor(s / 3600)} h ${String(Math.floor(s / 60) % 60).padStart(2, "0")} min`;
  };

  // As TensorBoard smooths; counts: each value is the mean of so many.
  const smooth = (values, counts, weight) => {
    if (weight <= 0) return values;
    let average = 0, seen = 0;
    return values.map((value, k) => {
      const count = counts ? counts[k] : 1;
      const kept = Math.pow(weight, count);
      seen += count;
      average = kept * average + (1 - kept) * value;
      return average / (1 - Math.pow(weight, seen));
    });
  };

  const secondsAt = (run, step) => {
    const clock = data.runs[run].clock;
    if (!clock) return NaN;
    const [steps, seconds] = clock;
    let low = 0, high = steps.length - 1;
    if (step <= steps[0]) return steps[0] > 0 ? seconds[0] * Math.max(step, 0) / steps[0] : seconds[0];
    if (step >= steps[high]) return seconds[high];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] <= step) low = middle; else high = middle;
    }
    return seconds[low] + (seconds[high] - seconds[low]) * (step - steps[low]) / (steps[high] - steps[low]);
  };

  const tickStep = (range, wanted) => {
    const rough = range / wanted, power = Math.pow(10, Math.floor(Math.log10(rough)));
    for (const digit of [1, 2, 5]) if (digit * power >= rough * (1 - 1e-9)) return digit * power;
    return 10 * power;
  };

  const ticks = (low, high, wanted) => {
    if (!(high > low)) return [];
    const step = tickStep(high - low, wanted), most = Math.max(Math.abs(low), Math.abs(high));
    const unit = most >= 1e4 && most < 1e7 ? 1e3 : most >= 1e7 && most < 1e10 ? 1e6 : 1;
    const decimals = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
    const plain = most < 1e10 && step / unit >= 0.9e-4;
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step && found.length < 50; ++k) {
      const value = k * step, part = value / unit;
      if (!Number.isFinite(value)) break;
      const suffix = unit === 1e3 ? "k" : unit === 1e6 ? "M" : "";
      found.push([value, value === 0 ? "0" : (plain ? part.toFixed(decimals) : part.toExponential(1)) + suffix]);
    }
    return found;
  };

  const timeTicks = (low, high, wanted) => {
    const span = high - low;
    const [unit, name] = span > 2 * 86400 ? [86400, " d"] : span > 2 * 3600 ? [3600, " h"] : span > 120 ? [60, " min"] : [1, " s"];
    return ticks(low / unit, high / unit, wanted).map(([value, text]) => [value * unit, text + name]);
  };

  const logTicks = (low, high) => {
    if (high < 10 * low) return ticks(low, high, 5).filter(([value]) => value > 0);
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high)), found = [];
    const digits = high < 300 * low ? [1, 2, 5] : [1];
    const stride = Math.max(1, Math.ceil((last - first) / 7));
    for (let power = first; power <= last; power += stride) {
      for (const digit of digits) {
        const value = digit * Math.pow(10, power);
        if (value >= low * 0.999 && value <= high * 1.001) found.push([value, power < -4 || power > 4 ? `${digit}e${power}` : String(Number(value.toPrecision(2)))]);
      }
    }
    return found;
  };

  // ---- a chart -----------------------------------------------------------------------------------------------------

  const make = (name, attributes, parent) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (parent) parent.append(element);
    return element;
  };
  const div = (name, text, parent) => {
    const element = document.createElement("div");
    element.className = name;
    if (text !== undefined) element.textContent = text;
    if (parent) parent.append(element);
    return element;
  };

  const range = (raw, smoothed) => {
    raw.sort((a, b) => a - b);
    let low = raw[0], high = raw[raw.length - 1];
    if (!state.all && raw.length >= 50) {
      const cut = Math.floor(raw.length / 50), innerLow = raw[cut], innerHigh = raw[raw.length - 1 - cut];
      const inner = innerHigh - innerLow;
      if (high - innerHigh > 0.5 * inner) high = innerHigh;
      if (innerLow - low > 0.5 * inner) low = innerLow;
      smoothed.sort((a, b) => a - b);
      const end = Math.floor(smoothed.length / 100);
      low = Math.min(low, smoothed[end]);
      high = Math.max(high, smoothed[smoothed.length - 1 - end]);
    }
    if (state.log) return low === high ? [low / 2, high * 2] : [low / 1.08, high * 1.08];
    let margin = 0.08 * (high / 2 - low / 2);  // halves do not overflow
    if (!(margin > 1e-12 * Math.max(Math.abs(low), Math.abs(high)))) margin = high === 0 ? 1 : 0.1 * Math.abs(high);
    margin = Math.max(margin, 1e-300);  // below the smallest normal numbers, differences have no digits
    const most = Number.MAX_VALUE;
    return [low >= 0 && low - margin < 0.05 * high ? 0 : Math.max(low - margin, -most), Math.min(high + margin, most)];
  };

  const nearest = (list, x) => {
    let low = 0, high = list.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (list[middle] <= x) low = middle; else high = middle;
    }
    return Math.abs(list[high] - x) < Math.abs(list[low] - x) ? high : low;
  };

  class Chart {
    constructor(figure, index) {
      this.figure = figure;
      this.plot = figure.querySelector(".plot");
      this.index = index;
      this.series = data.charts[index];
      this.tip = div("tip", undefined, this.plot);
      this.tip.hidden = true;
      this.plot.addEventListener("pointermove", (event) => this.point(event));
      this.plot.addEventListener("pointerleave", () => this.leave());
      const grow = figure.querySelector(".grow");
      grow.hidden = false;
      grow.addEventListener("click", () => {
        const large = figure.classList.toggle("large");
        grow.setAttribute("aria-pressed", String(large));
        this.draw();
      });
    }

    // The curves that are to be drawn, with their x and y as the controls want them.
    curves() {
      const found = [];
      for (const series of this.series) {
        if (state.hidden.has(series.key)) continue;
        const place = (steps) => state.axis === "time" ? steps.map((step) => secondsAt(series.run, step)) : steps;
        if (state.axis === "time" && !data.runs[series.run].clock) continue;
        const dotted = series.y.length <= data.dotted;
        const means = series.means || series.y, meanSteps = series.meanSteps || series.x;
        const smoothed = dotted ? series.y : smooth(means, series.counts, state.smoothing);
        found.push({series, dotted, x: place(series.x), y: series.y, sx: place(dotted ? series.x : meanSteps), sy: smoothed});
      }
      return found;
    }

    draw() {
      this.leave();
      const old = this.plot.querySelector("svg, .nothing");
      const width = Math.max(240, Math.round(this.plot.clientWidth)), large = this.figure.classList.contains("large");
      const height = large ? Math.max(300, Math.round(Math.min(width * 0.36, 460))) : Math.round(Math.max(190, Math.min(width * 0.562, 260)));
      this.drawn = this.curves();
      const positive = (value) => Number.isFinite(value) && (!state.log || value > 0);
      const raw = [], smoothed = [];
      let first = Infinity, last = -Infinity;
      for (const curve of this.drawn) {
        curve.y.forEach((value, k) => {
          if (!positive(value)) return;
          raw.push(value);
          if (curve.x[k] < first) first = curve.x[k];
          if (curve.x[k] > last) last = curve.x[k];
        });
        for (const value of curve.sy) if (positive(value)) smoothed.push(value);
      }
      if (raw.length === 0) {
        const why = this.drawn.length ? "No values above 0 to draw on a log scale." : state.axis === "time" && this.series.some((s) => !state.hidden.has(s.key)) ? "The times of these steps were not recorded." : "Switched off in the legend.";
        const nothing = div("nothing", why);
        old.replaceWith(nothing);
        return;
      }
      if (!(first < last)) last = first + 1;
      if (first > 0 && first < 0.2 * last) first = 0;
      const [low, high] = range(raw, smoothed);
      const scale = state.log ? Math.log : (value) => value;
      const X = (value) => LEFT + (value - first) / (last - first) * (width - LEFT - RIGHT);
      const Y = (value) => Math.max(-1e4, Math.min(1e4, TOP + (1 - (scale(value) / 2 - scale(low) / 2) / (scale(high) / 2 - scale(low) / 2)) * (height - TOP - BOTTOM)));
      this.frame = {X, Y, first, last, width, height};
      const svg = make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": this.figure.querySelector("h3").textContent});
      const clip = make("clipPath", {id: `f${this.index}`}, svg);
      make("rect", {x: LEFT, y: TOP - 3, width: width - LEFT - RIGHT + 3, height: height - TOP - BOTTOM + 5}, clip);
      const axis = make("g", {class: "axis"}, svg);
      for (const [value, text] of state.log ? logTicks(low, high) : ticks(low, high, Math.round(height / 46))) {
        make("path", {class: "grid", d: `M${LEFT} ${Y(value)}H${width - RIGHT}`}, axis);
        make("text", {class: "ty", x: LEFT - 7, y: Y(value)}, axis).textContent = text;
      }
      make("path", {class: "base", d: `M${LEFT} ${height - BOTTOM}H${width - RIGHT}`}, axis);
      for (const [value, text] of (state.axis === "time" ? timeTicks : ticks)(first, last, Math.max(3, Math.round(width / 75)))) {
        make("text", {class: X(value) > width - RIGHT - 12 ? "tx end" : "tx", x: X(value), y: height - 9}, axis).textContent = text;
      }
      const body = make("g", {"clip-path": `url(#f${this.index})`}, svg);
      const path = (xs, ys) => {
        let text = "", lastPoint = "";
        ys.forEach((value, k) => {
          if (!positive(value)) return;
          const point = `${X(xs[k]).toFixed(1)} ${Y(value).toFixed(1)}`;
          if (point !== lastPoint) text += (text ? "L" : "M") + point;
          lastPoint = point;
        });
        return text;
      };
      for (const curve of this.drawn) {
        const group = make("g", {class: `c${data.keys[curve.series.key].colour} d${curve.series.dash % 4}`, "data-key": curve.series.key}, body);
        if (state.smoothing > 0 && !curve.dotted) make("path", {class: "raw", d: path(curve.x, curve.y)}, group);
        make("path", {class: "smooth", d: state.smoothing > 0 || curve.dotted ? path(curve.sx, curve.sy) : path(curve.x, curve.y)}, group);
        if (curve.dotted) curve.y.forEach((value, k) => positive(value) && make("circle", {r: 2.2, cx: X(curve.x[k]), cy: Y(value)}, group));
        if (curve.series.lost >= 0) {
          const at = state.axis === "time" ? secondsAt(curve.series.run, curve.series.lost) : curve.series.lost;
          make("path", {class: "lost", d: `M${X(Math.max(first, Math.min(last, at)))} ${TOP}V${height - BOTTOM}`}, group);
        }
      }
      old.replaceWith(svg);
      this.svg = svg;
    }

    point(event) {
      if (!this.plot.querySelector("svg") || !this.frame) return;
      const {X, Y, first, last, width, height} = this.frame;
      const box = this.svg.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * width;
      const x = first + (at - LEFT) / (width - LEFT - RIGHT) * (last - first);
      this.svg.querySelectorAll(".cursor, .dot").forEach((mark) => mark.remove());
      if (at < LEFT - 4 || at > width - RIGHT + 4) { this.tip.hidden = true; return; }
      make("path", {class: "cursor", d: `M${at} ${TOP}V${height - BOTTOM}`}, this.svg);
      this.tip.replaceChildren();
      const steps = [];
      const rows = [];
      for (const curve of this.drawn) {
        const k = nearest(curve.sx, x), raw = curve.y[nearest(curve.x, x)];
        if (!Number.isFinite(curve.sx[k])) continue;
        const colour = data.keys[curve.series.key].colour;
        const mark = make("circle", {class: "dot", r: 3.6, cx: X(curve.sx[k]), cy: Y(curve.sy[k])});
        const group = make("g", {class: `c${colour}`}, this.svg);
        group.classList.add("dot");
        group.append(mark);
        steps.push((curve.series.meanSteps && !curve.dotted ? curve.series.meanSteps : curve.series.x)[k]);
        rows.push([colour, curve, curve.sy[k], raw, Math.abs(X(curve.sx[k]) - at)]);
      }
      if (rows.length === 0) { this.tip.hidden = true; return; }
      let close = 0;
      rows.forEach((row, k) => { if (row[4] < rows[close][4]) close = k; });
      const step = steps[close];
      const time = secondsAt(rows[close][1].series.run, step);
      div("at", `step ${step.toLocaleString("en")}` + (Number.isFinite(time) ? ` · ${duration(time)}` : ""), this.tip);
      rows.sort((a, b) => b[2] - a[2]);
      for (const [colour, curve, value, raw] of rows.slice(0, 12)) {
        const row = div("row", undefined, this.tip);
        const swatch = document.createElement("span");
        swatch.className = `swatch c${colour} d${curve.series.dash % 4}`;
        row.append(swatch);
        div("who", curve.series.label, row);
        div("v", shown(value), row);
        div("r", curve.dotted || state.smoothing === 0 ? "" : shown(raw), row);
      }
      this.tip.hidden = false;
      const place = at / width * this.plot.clientWidth;
      const right = place > this.plot.clientWidth / 2;
      this.tip.style.left = right ? "auto" : `${place + 14}px`;
      this.tip.style.right = right ? `${this.plot.clientWidth - place + 14}px` : "auto";
    }

    leave() {
      this.tip.hidden = true;
      if (this.svg) this.svg.querySelectorAll(".cursor, .dot").forEach((mark) => mark.remove());
    }
  }

  const charts = [...document.querySelectorAll("figure.chart")].map((figure, index) => new Chart(figure, index));

  // ---- controls ----------------------------------------------------------------------------------------------------

  let waiting = 0;
  const redraw = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => charts.forEach((chart) => chart.draw()));
  };
  const tools = document.getElementById("tools");
  if (tools) {
    tools.hidden = false;
    const slider = document.getElementById("smoothing"), value = document.getElementById("smoothing-value");
    slider.addEventListener("input", () => {
      state.smoothing = Number(slider.value);
      value.textContent = state.smoothing.toFixed(2);
      redraw();
    });
    const axes = [...tools.querySelectorAll("[data-axis]")];
    for (const button of axes) {
      button.addEventListener("click", () => {
        state.axis = button.dataset.axis;
        axes.forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
        redraw();
      });
    }
    for (const name of ["log", "all"]) {
      const box = document.getElementById(name);
      box.addEventListener("change", () => { state[name] = box.checked; redraw(); });
    }
    for (const button of document.querySelectorAll(".key")) {
      button.addEventListener("click", () => {
        const key = Number(button.dataset.key);
        state.hidden.has(key) ? state.hidden.delete(key) : state.hidden.add(key);
        button.setAttribute("aria-pressed", String(!state.hidden.has(key)));
        redraw();
      });
    }
    let width = 0;
    new ResizeObserver(() => {
      if (Math.abs(document.body.clientWidth - width) < 2) return;
      width = document.body.clientWidth;
      redraw();
    }).observe(document.body);
    charts.forEach((chart) => chart.draw());
  }
  document.documentElement.dataset.ready = "true";
})();
