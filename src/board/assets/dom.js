// SPDX-License-Identifier: Apache-2.0
// Elements. Text reaches the page only as text nodes, so that a name with markup is shown as it is.
import {localText, utcText} from './format.js';

// el('p', {class: 'note', title: t, on: {click: f}}, 'text', child): attributes with null are left
// out; children are nodes or text.
export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  setAttributes(node, attributes);
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export function svgElement(tag, attributes, ...children) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
  setAttributes(node, attributes);
  node.append(...children);
  return node;
}

function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (name === 'value') {
      node.value = value;
    } else if (name === 'style') {
      for (const [property, text] of Object.entries(value)) node.style.setProperty(property, text);
    } else {
      node.setAttribute(name, value === true ? '' : value);
    }
  }
}

export function replace(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

// The same for what is drawn again while the reader uses it: focus and scroll positions stay.
export function redraw(node, ...children) {
  const focused = node.contains(document.activeElement) ? document.activeElement : null;
  const scrolled = [...node.querySelectorAll('.scroll')].map((one) => one.scrollTop);
  replace(node, ...children);
  [...node.querySelectorAll('.scroll')].forEach((one, i) => {
    one.scrollTop = scrolled[i] ?? 0;
  });
  if (!focused) return;
  const is_same = (one) => one.title === focused.title && one.className === focused.className &&
    (focused.title || one.textContent === focused.textContent);
  [...node.querySelectorAll(focused.tagName)].find(is_same)?.focus({preventScroll: true});
}

// A time in UTC; the local time is its tooltip.
export function timeElement(seconds) {
  return el('time', {title: localText(seconds)}, utcText(seconds));
}

// columns: [{name, is_number}]; rows: arrays of text or nodes. A table that is wider than its panel
// scrolls in it.
export function tableElement(caption, columns, rows) {
  return el('div', {class: 'table'}, plainTable(caption, columns, rows));
}

function plainTable(caption, columns, rows) {
  const align = (i) => (columns[i] && columns[i].is_number ? 'number' : null);
  return el('table', {},
      el('caption', {class: 'unseen'}, caption),
      el('thead', {}, el('tr', {}, columns.map((column, i) =>
        el('th', {scope: 'col', class: align(i)}, column.name)))),
      el('tbody', {}, rows.map((row) =>
        el('tr', {}, row.map((cell, i) => el('td', {class: align(i)}, cell))))));
}

// A table that scrolls in its panel and can be reached by keyboard.
export function scrolledTable(caption, columns, rows) {
  return el('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption},
      plainTable(caption, columns, rows));
}

// Hides a panel that has no data, and notes why; null shows it. grid.js lists what is hidden.
export function setEmpty(panel, reason) {
  panel.hidden = reason !== null;
  if ((panel.dataset.empty ?? '') !== (reason ?? '')) panel.dataset.empty = reason ?? '';
}

export function note(text) {
  return el('p', {class: 'note'}, text);
}

// options: [[value, label]]; calls `chosen` with the value.
export function selectElement(label, options, value, chosen) {
  const select = el('select', {'aria-label': label, title: label,
    on: {change: () => chosen(select.value)}},
  options.map(([key, text]) => el('option', {value: key, selected: key === value}, text)));
  return select;
}

export function buttonElement(text, title, clicked, attributes = {}) {
  return el('button', {type: 'button', title, on: {click: clicked}, ...attributes}, text);
}

// A panel: a heading that asks the question, tools at its right, a body. Returns {node, tools, body}.
export function makePanel(id, question, about, attributes = {}) {
  const tools = el('div', {class: 'tools'});
  const body = el('div', {class: 'body'});
  const node = el('section', {id, class: 'panel', 'aria-labelledby': `${id}-title`, ...attributes},
      el('header', {}, el('div', {class: 'heading'}, el('h2', {id: `${id}-title`}, question),
          el('p', {class: 'about'}, about)), tools),
      body);
  return {node, tools, body};
}

// A button that switches between a picture and its numbers: calls `switched(is_table)`.
export function tableButton(switched) {
  let is_table = false;
  const button = buttonElement('table', 'show the numbers as a table', () => {
    is_table = !is_table;
    button.setAttribute('aria-pressed', String(is_table));
    switched(is_table);
  });
  return button;
}

// A canvas of `width` x `height` CSS pixels that is sharp on this screen; returns its 2D context.
export function sizeCanvas(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

// Calls `resized` after the width of `node` has changed.
export function watchWidth(node, resized) {
  let width = 0;
  const observer = new ResizeObserver(() => {
    const now = Math.floor(node.clientWidth);
    if (now === width || now === 0) return;
    width = now;
    window.requestAnimationFrame(resized);
  });
  observer.observe(node);
}

// Saves text as a file on the reader's machine.
export function saveText(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], {type}));
  const link = el('a', {href: address, download: name});
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(address), 10000);
}
