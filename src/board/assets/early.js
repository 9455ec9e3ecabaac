// SPDX-License-Identifier: Apache-2.0
// Asks for the list of runs while the other scripts are loaded. A report has this script inline, and
// all answers.
if (document.currentScript.src) {
  window.early_runs = window.fetch('/api/runs', {credentials: 'same-origin', cache: 'no-store'});
  window.early_runs.catch(() => {});  // getJson() reports the failure
}
