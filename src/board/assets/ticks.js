// SPDX-License-Identifier: Apache-2.0
// Ticks of axes, in the form that dygraphs asks for: [{v, label}].
import {compact, utcText} from './format.js';

// Round numbers: 1, 2 or 5 times a power of ten.
export function numberTicks(low, high, pixels, per_tick, label = (value) => compact(value, 4)) {
  if (!(high > low)) return [{v: low, label: label(low)}];
  const rough = (high - low) / Math.max(1, pixels / per_tick);
  const power = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].find((factor) => factor * power >= 0.9 * rough) * power;
  const ticks = [];
  for (let i = Math.ceil(low / unit); i * unit <= high * (1 + 1e-12) && ticks.length < 100; ++i) {
    const value = Number((i * unit).toPrecision(12));
    ticks.push({v: value, label: label(value)});
  }
  return ticks;
}

export function logTicks(low, high, pixels, per_tick, label = (value) => compact(value, 3)) {
  const decades = Math.log10(high / low);
  if (!(low > 0) || decades < 0.6) return numberTicks(low, high, pixels, per_tick, label);
  const room = pixels / per_tick;
  const factors = room / decades >= 3 ? [1, 2, 5] : [1];
  const stride = Math.max(1, Math.ceil(decades / Math.max(1, room)));
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += stride) {
    for (const factor of factors) {
      const value = Number((factor * 10 ** power).toPrecision(3));
      if (value >= low && value <= high) ticks.push({v: value, label: label(value)});
    }
  }
  return ticks;
}

// Times in UTC: whole seconds, minutes, hours, days.
export function timeTicks(low, high, pixels, per_tick) {
  const units = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
    172800, 604800, 1209600, 2592000, 7776000, 31536000];
  const rough = (high - low) / Math.max(1, pixels / per_tick);
  const unit = units.find((one) => one >= rough) || units[units.length - 1];
  const ticks = [];
  for (let time = Math.ceil(low / unit) * unit; time <= high && ticks.length < 100; time += unit) {
    const text = utcText(time);
    const is_day = unit >= 86400 || time % 86400 === 0;
    ticks.push({v: time, label: is_day ? text.slice(5, 10) : text.slice(11, unit < 60 ? 19 : 16)});
  }
  return ticks;
}
