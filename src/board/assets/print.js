// SPDX-License-Identifier: Apache-2.0
// Printing. Panels far below the window ask for nothing until the reader comes near, but paper has
// no window: before it is printed, every panel is filled, and pictures are drawn at the width of the
// paper. The browser does not wait for a server, so that a board fills its panels when it is idle;
// a report carries its answers and fills them at once.
import {isReport} from './api.js';

let is_filling_all = false, is_printing = false;
const fillers = new Set(), layouts = new Set(), drawers = new Set();

export function isFillingAll() {
  return is_filling_all;
}

export function isPrinting() {
  return is_printing;
}

// Calls `fill()`, which returns a promise, when panels outside of the window are filled, too.
export function onFillAll(fill) {
  fillers.add(fill);
}

// Calls `arrange()` when the layout changes to that of the paper, or back to that of the window;
// then what was given to onPrint().
export function onPrintLayout(arrange) {
  layouts.add(arrange);
}

export function onPrint(draw) {
  drawers.add(draw);
}

export function fillAll() {
  is_filling_all = true;
  Promise.all([...fillers].map((fill) => fill())).catch(() => {
    // Panels and the top of the page show what the server answered.
  }).finally(() => {
    is_filling_all = isReport();
  });
}

let theme_of_window;

// Paper is light.
function drawPictures(is_paper) {
  const root = document.documentElement;
  if (is_paper && !is_printing) {
    theme_of_window = root.dataset.theme;
    root.dataset.theme = 'light';
  } else if (!is_paper && theme_of_window === undefined) {
    delete root.dataset.theme;
  } else if (!is_paper) {
    root.dataset.theme = theme_of_window;
  }
  is_printing = is_paper;
  root.classList.toggle('printing', is_paper);
  for (const draw of [...layouts, ...drawers]) draw();
}

export function listenToPrint() {
  if (isReport()) fillAll();
  else window.setTimeout(() => (window.requestIdleCallback || window.setTimeout)(fillAll), 3000);
  window.addEventListener('beforeprint', () => {
    fillAll();
    drawPictures(true);
  });
  window.addEventListener('afterprint', () => drawPictures(false));
}
