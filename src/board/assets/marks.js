// SPDX-License-Identifier: Apache-2.0
// Vertical lines of a chart: events with a letter, and the begins of phases with their name.
import {cssColor, textFont, textScale} from './paint.js';

// marks: [{x, letter, kind: 'error' | 'mark' | 'phase', label}]; what does not fit is left out.
export function paintMarks(context, scale, marks) {
  const right_edge = scale.left + scale.width;
  let letters_end = -Infinity, labels_end = -Infinity;
  context.save();
  for (const {x, letter, kind, label} of marks) {
    const at = x === null ? NaN : scale.x(x);
    if (!(at >= scale.left && at <= right_edge)) continue;
    context.strokeStyle = context.fillStyle = cssColor({error: '--bad', phase: '--muted'}[kind] || '--mark');
    context.globalAlpha = 0.7;
    context.setLineDash(kind === 'error' ? [] : kind === 'phase' ? [1, 3] : [3, 3]);
    context.beginPath();
    context.moveTo(Math.round(at) + 0.5, scale.top + 12);
    context.lineTo(Math.round(at) + 0.5, scale.top + scale.height);
    context.stroke();
    context.globalAlpha = 1;
    if (kind === 'phase') {
      context.font = textFont(11);
      const width = context.measureText(label).width;
      const from = at + 4 + width <= right_edge ? at + 4 : at - 4 - width;
      if (from > labels_end && from >= scale.left) {
        context.textAlign = 'left';
        context.fillText(label, from, scale.top + 22 * textScale());
        labels_end = from + width + 4;
      }
    } else if (at - letters_end > 11) {
      context.font = textFont(10, 600);
      context.textAlign = 'center';
      context.fillText(letter, at, scale.top + 9);
      letters_end = at;
    }
  }
  context.restore();
}
