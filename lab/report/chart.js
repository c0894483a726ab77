// Draws each chart of the page from the data in it. Click a key to hide a series, move over a chart to read its values,
// drag to zoom, double-click to see all again.
'use strict';
(() => {
  const W = 760, H = 340, LEFT = 62, RIGHT = 12, TOP = 10, BOTTOM = 44;
  const COLOURS = ['#2f6fde', '#d9480f', '#2b8a3e', '#9c36b5', '#c2255c', '#0b7285', '#996515', '#5c4ad1', '#6b7280'];

  const make = (name, attributes, parent, text) => {
    const it = document.createElementNS('http://www.w3.org/2000/svg', name);
    for (const key in attributes) it.setAttribute(key, attributes[key]);
    if (text !== undefined) it.textContent = text;
    if (parent) parent.append(it);
    return it;
  };
  const button = (text, pressed, parent, onclick) => {
    const it = document.createElement('button');
    it.type = 'button';
    it.textContent = text;
    it.setAttribute('aria-pressed', pressed);
    it.addEventListener('click', onclick);
    parent.append(it);
    return it;
  };
  const figure = (v) => {
    if (v === 0) return '0';
    const size = Math.abs(v);
    if (size >= 1e6) return `${+(v / 1e6).toPrecision(3)} M`;
    if (size >= 1e4) return `${+(v / 1e3).toPrecision(3)} k`;
    return String(+v.toPrecision(size >= 100 ? 4 : 3));
  };

  // Values of ticks between two ends.
  const ticks = (from, to, log) => {
    const found = [];
    if (log) {
      const few = Math.log10(to / from) > 1.2;
      for (let e = Math.floor(Math.log10(from)); e <= Math.ceil(Math.log10(to)); e++)
        for (const m of few ? [1] : [1, 2, 5]) {
          const v = m * 10 ** e;
          if (v >= from * 0.999 && v <= to * 1.001) found.push(v);
        }
      if (found.length > 1) return found;
      found.length = 0;
    }
    const raw = (to - from) / 6 || 1, size = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].find((m) => m * size >= raw) * size;
    for (let v = Math.ceil(from / step) * step; v <= to + step / 1e6; v += step) found.push(Math.abs(v) < step / 1e6 ? 0 : v);
    return found;
  };

  const draw = (box) => {
    const data = JSON.parse(box.querySelector('script').textContent);
    const words = data.x.categories;
    const place = (x) => (words ? words.indexOf(x) : x);
    const colour = {};
    let used = 0;
    for (const one of data.series) {
      // An earlier run has the colour of the series that it belongs to.
      const base = one.label.split('; ')[0];
      if (one.kind !== 'paper' && !(base in colour)) colour[base] = COLOURS[used++ % COLOURS.length];
      one.colour = one.kind === 'paper' ? 'var(--ink)' : colour[base];
      one.shown = true;
    }
    const state = { x: data.x.log && !words, y: data.y.log, zoom: null };
    const tools = document.createElement('div');
    tools.className = 'tools';
    const keys = document.createElement('div');
    keys.className = 'keys';
    const at = document.createElement('div');
    at.className = 'at';
    const svg = make('svg', { viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': data.title });
    box.querySelector('figcaption').before(tools);
    box.append(svg, keys, at);

    for (const axis of words ? ['y'] : ['x', 'y'])
      button(`log ${axis}`, state[axis], tools, (event) => {
        state[axis] = !state[axis];
        event.target.setAttribute('aria-pressed', state[axis]);
        paint();
      });
    for (const one of data.series) {
      const key = button(one.label, true, keys, () => {
        one.shown = !one.shown;
        key.setAttribute('aria-pressed', one.shown);
        paint();
      });
      const mark = document.createElement('span');
      mark.textContent = { here: '●─ ', known: '○┄ ', paper: '◆╌ ' }[one.kind];
      mark.style.color = one.colour;
      key.prepend(mark);
    }

    let scale;
    const paint = () => {
      svg.replaceChildren();
      const shown = data.series.filter((one) => one.shown);
      const all = shown.flatMap((one) => one.points.map(([x, y]) => [place(x), y]))
        .filter(([x, y]) => (!state.x || x > 0) && (!state.y || y > 0))
        .filter(([x]) => !state.zoom || (x >= state.zoom[0] && x <= state.zoom[1]));
      if (!all.length) return;
      const xs = all.map((p) => p[0]), ys = all.map((p) => p[1]);
      let [x0, x1] = words ? [-0.5, words.length - 0.5] : [Math.min(...xs), Math.max(...xs)];
      let [y0, y1] = [Math.min(...ys), Math.max(...ys)];
      if (!state.y) { y0 = Math.min(0, y0); y1 += (y1 - y0) * 0.06 || 1; } else { y0 /= 1.15; y1 *= 1.15; }
      if (x0 === x1) { x0 = state.x ? x0 / 2 : x0 - 1; x1 = state.x ? x1 * 2 : x1 + 1; }
      const map = (v, from, to, log) => (log ? Math.log(v / from) / Math.log(to / from) : (v - from) / (to - from));
      scale = {
        x: (v) => LEFT + (W - LEFT - RIGHT) * map(v, x0, x1, state.x),
        y: (v) => H - BOTTOM - (H - TOP - BOTTOM) * map(v, y0, y1, state.y),
        back: (px) => {
          const t = (px - LEFT) / (W - LEFT - RIGHT);
          return state.x ? x0 * (x1 / x0) ** t : x0 + (x1 - x0) * t;
        },
      };
      for (const v of ticks(y0, y1, state.y)) {
        make('line', { class: 'grid', x1: LEFT, x2: W - RIGHT, y1: scale.y(v), y2: scale.y(v) }, svg);
        make('text', { x: LEFT - 6, y: scale.y(v) + 4, 'text-anchor': 'end' }, svg, figure(v));
      }
      if (words) {
        const room = (W - LEFT - RIGHT) / words.length / 6.6;
        words.forEach((word, n) => make('text', { x: scale.x(n), y: H - BOTTOM + 16, 'text-anchor': 'middle' }, svg,
          word.length > room ? `${word.slice(0, Math.max(1, room - 1))}…` : word));
      } else
        for (const v of ticks(x0, x1, state.x)) {
          make('line', { class: 'grid', x1: scale.x(v), x2: scale.x(v), y1: TOP, y2: H - BOTTOM }, svg);
          make('text', { x: scale.x(v), y: H - BOTTOM + 16, 'text-anchor': 'middle' }, svg, figure(v));
        }
      make('text', { x: (LEFT + W - RIGHT) / 2, y: H - 6, 'text-anchor': 'middle' }, svg, data.x.label);
      make('text', { x: 0, y: 0, transform: `translate(12 ${(TOP + H - BOTTOM) / 2}) rotate(-90)`, 'text-anchor': 'middle' }, svg, data.y.label);
      shown.forEach((one, n) => series(one, words ? n - (shown.length - 1) / 2 : 0, shown.length));
    };

    const series = (one, turn, count) => {
      const group = make('g', { class: `series ${one.kind}`, 'data-label': one.label, fill: one.colour, stroke: one.colour }, svg);
      const visible = one.points.filter(([x, y]) => (!state.x || place(x) > 0) && (!state.y || y > 0)
        && (!state.zoom || (place(x) >= state.zoom[0] && place(x) <= state.zoom[1])));
      // Series of one word stand beside each other.
      const step = words ? (W - LEFT - RIGHT) / words.length * 0.8 / count : 0;
      const spots = visible.map(([x, y]) => [scale.x(place(x)) + turn * step, scale.y(y), x, y]);
      if (!words && spots.length > 1)
        make('polyline', {
          points: spots.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(' '), fill: 'none', 'stroke-width': 2,
          'stroke-dasharray': { here: 'none', known: '3 3', paper: '8 4' }[one.kind],
        }, group);
      if (spots.length > 120) return;
      for (const [x, y, vx, vy] of spots) {
        const dot = one.kind === 'paper'
          ? make('path', { d: `M${x - 5} ${y}L${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}Z` }, group)
          : make('circle', { cx: x, cy: y, r: words ? 4 : 3, 'fill-opacity': one.kind === 'here' ? 1 : 0 }, group);
        // A single point of a paper has its name beside it.
        if (one.kind === 'paper' && one.points.length === 1)
          make('text', { x: x - 9, y: y + 4, 'text-anchor': 'end', stroke: 'none' }, group, one.label);
        make('title', {}, dot, `${one.label}: ${typeof vx === 'number' ? figure(vx) : vx}, ${figure(vy)}`);
      }
    };

    const inside = (event) => {
      const rect = svg.getBoundingClientRect();
      return scale.back((event.clientX - rect.left) / rect.width * W);
    };
    let from = null;
    svg.addEventListener('pointerdown', (event) => { from = words || !scale ? null : inside(event); });
    svg.addEventListener('pointermove', (event) => {
      if (!scale) return;
      const x = inside(event);
      const shown = data.series.filter((one) => one.shown && one.points.length);
      const nearest = (one) => one.points.reduce((best, p) => (Math.abs(place(p[0]) - x) < Math.abs(place(best[0]) - x) ? p : best));
      const all = shown.map((one) => [one, nearest(one)]);
      if (!all.length) return;
      const key = all.map(([, p]) => p[0]).reduce((best, v) => (Math.abs(place(v) - x) < Math.abs(place(best) - x) ? v : best));
      at.textContent = `${words ? key : figure(key)}: ` + all.filter(([, p]) => p[0] === key)
        .map(([one, p]) => `${one.label} ${figure(p[1])}`).join(' · ');
      if (from === null) return;
      svg.querySelector('.zoom')?.remove();
      const ends = [scale.x(from), scale.x(x)].sort((a, b) => a - b);
      make('rect', { class: 'zoom', x: ends[0], width: ends[1] - ends[0], y: TOP, height: H - TOP - BOTTOM }, svg);
    });
    addEventListener('pointerup', (event) => {
      if (from === null) return;
      const ends = [from, inside(event)].sort((a, b) => a - b);
      const wide = scale.x(ends[1]) - scale.x(ends[0]) > 12;
      from = null;
      svg.querySelector('.zoom')?.remove();
      const has = data.series.some((one) => one.points.some(([x]) => x >= ends[0] && x <= ends[1]));
      if (wide && has) { state.zoom = ends; paint(); }
    });
    svg.addEventListener('dblclick', () => { state.zoom = null; paint(); });
    paint();
  };

  for (const box of document.querySelectorAll('figure.chart')) {
    try {
      draw(box);
    } catch (error) {
      box.append(`This chart cannot be drawn: ${error}`);
    }
  }
})();
