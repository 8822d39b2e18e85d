"use strict";

// The slider moves the work of the device between the earliest and the latest time it may be done. Orders are
// inequalities between two times: what both schedules keep, every mixture of them keeps.

function bend(x1, y1, x2, y2) {
  const [host, half] = [18, 9];
  if (y1 !== y2 && x1 - host <= x2 && x2 <= x1) {
    const turn = y2 > y1 ? half : -half;
    return `M${x2 + half},${y1 + turn} L${x2 + half},${y2 - turn}`;
  }
  if (y1 === y2) {
    return `M${x1 - half},${y1 - half} Q${(x1 + x2) / 2},${y1 - 3 * half} ${x2},${y2 - half / 2}`;
  }
  const bow = Math.max(14, Math.min(60, Math.abs(x2 - x1) / 2));
  return `M${x1},${y1} C${x1 + bow},${y1} ${x2 - bow},${y2} ${x2},${y2}`;
}

function number(element, name) {
  return Number(element.dataset[name]);
}

function place(item, lag) {
  const eager = number(item, "eager");
  return eager + lag * (number(item, "latest") - eager);
}

function moveItem(item, lag) {
  if (!item.classList.contains("device")) return;
  const x = number(item, "x");
  const done = place(item, lag);
  item.querySelector(".block").setAttribute("x", done);
  const open = item.querySelector(".window");
  if (open) open.setAttribute("width", Math.max(0, done - x));
}

function moveEdge(edge, items, lag) {
  const source = items[number(edge, "from")];
  const target = items[number(edge, "to")];
  const wide = Number(source.querySelector(".block").getAttribute("width"));
  const [x1, x2] = [place(source, lag) + wide, place(target, lag)];
  const [y1, y2] = [number(source, "y"), number(target, "y")];
  edge.querySelector("path").setAttribute("d", bend(x1, y1, x2, y2));
  const name = edge.querySelector("text");
  if (name) {
    name.setAttribute("x", Math.max(40, (x1 + x2) / 2));
    name.setAttribute("y", (y1 + y2) / 2 - (y1 === y2 ? 28 : 4));
  }
}

function tell(figure, item) {
  const told = figure.querySelector(".told");
  const words = document.createElement("p");
  words.textContent = item.getAttribute("aria-label");
  const parts = [words];
  for (const lines of figure.querySelectorAll(".sources .code")) {
    if (lines.dataset.place === item.dataset.place) parts.push(lines.cloneNode(true));
  }
  told.replaceChildren(...parts);
}

function setUpItems(figure, items) {
  items.forEach((item, at) => {
    item.addEventListener("mouseenter", () => tell(figure, item));
    item.addEventListener("focus", () => tell(figure, item));
    item.addEventListener("keydown", (event) => {
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: items.length - 1 }[event.key];
      if (to === undefined || !items[to]) return;
      event.preventDefault();
      item.setAttribute("tabindex", "-1");
      items[to].setAttribute("tabindex", "0");
      items[to].focus();
      items[to].scrollIntoView({ block: "nearest", inline: "nearest" });
    });
  });
  const start = items.find((item) => item.classList.contains("first")) || items[0];
  if (start) start.setAttribute("tabindex", "0");
}

function setUpLag(figure, items) {
  const box = figure.querySelector(".lag");
  if (!box) return;
  const edges = [...figure.querySelectorAll(".edge")];
  const [slider, shown, now] = ["input", "output", ".now"].map((name) => box.querySelector(name));
  const [first, second] = ["first", "second"].map((role) => items.find((item) => item.classList.contains(role)));

  function move() {
    const lag = slider.value / 100;
    const word = lag === 0 ? ", eager" : lag === 1 ? ", latest" : "";
    shown.textContent = lag.toFixed(2) + word;
    slider.setAttribute("aria-valuetext", shown.textContent);
    items.forEach((item) => moveItem(item, lag));
    edges.forEach((edge) => moveEdge(edge, items, lag));
    if (!now) return;
    const late = place(first, lag) > place(second, lag);
    const order = late ? "after" : "before";
    now.textContent = `Now the first (${now.dataset.first}) comes ${order} the second (${now.dataset.second}).`;
    now.classList.toggle("wrong", late);
  }

  slider.addEventListener("input", move);
  box.hidden = false;
  move();
}

function showSecond(figure, items) {
  const view = figure.querySelector(".timeline");
  const second = items.find((item) => item.classList.contains("second"));
  if (second) view.scrollLeft = number(second, "eager") - view.clientWidth / 2;
}

for (const figure of document.querySelectorAll(".picture")) {
  const items = [...figure.querySelectorAll(".item")];
  setUpItems(figure, items);
  setUpLag(figure, items);
  showSecond(figure, items);
  const folded = figure.closest("details");
  if (folded) folded.addEventListener("toggle", () => showSecond(figure, items), { once: true });
}
