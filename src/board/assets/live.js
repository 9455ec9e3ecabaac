// SPDX-License-Identifier: Apache-2.0
// News of running runs. A browser allows six connections to a server, so one tab holds the stream
// and forwards messages to the others; a tab that receives none polls every two seconds.
import {getJson, isReport} from './api.js';

const reopen_ms = 1000;
const silence_ms = 4000;
const poll_ms = 2000;

// Calls `changed([{id, revision, step, state}])`, and `connected(true | false)` when that changes.
export function listen(changed, connected) {
  if (isReport()) return;
  let heard = 0, was_connected = true;
  const tell = (is_connected) => {
    if (is_connected !== was_connected) connected(is_connected);
    was_connected = is_connected;
  };
  const receive = (message) => {
    heard = Date.now();
    tell(message.is_connected);
    if (message.runs) changed(message.runs);
  };
  let is_holder = false;
  let send = () => {};
  if (window.BroadcastChannel && navigator.locks) {
    const channel = new window.BroadcastChannel('trireme-board');
    channel.addEventListener('message', (event) => receive(event.data));
    send = (message) => channel.postMessage(message);
    // The lock passes to another tab when this one is closed.
    navigator.locks.request('trireme-board-stream', () => new Promise(() => {
      is_holder = true;
      holdStream((message) => {
        receive(message);
        send(message);
      });
    }));
  }
  window.setInterval(async () => {
    if (is_holder || document.hidden || Date.now() - heard < silence_ms) return;
    try {
      const answer = await getJson('/api/runs');
      tell(true);
      changed(answer.runs || []);
    } catch {
      tell(false);
    }
  }, poll_ms);
}

function holdStream(receive) {
  let is_connected = true;
  const open = () => {
    const source = new window.EventSource('/api/stream');
    source.addEventListener('open', () => {
      is_connected = true;
      receive({is_connected});
    });
    source.addEventListener('update', (event) => {
      is_connected = true;
      receive({is_connected, runs: JSON.parse(event.data).runs});
    });
    source.addEventListener('error', () => {
      is_connected = false;
      source.close();
      receive({is_connected});
      window.setTimeout(open, reopen_ms);
    });
  };
  open();
  // Heartbeat for the tabs without the stream.
  window.setInterval(() => receive({is_connected}), poll_ms);
}
