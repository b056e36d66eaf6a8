// The service behind the page. The token, where there is one, came behind the # of the address and is kept for this tab.

const KEY = "neuralsurv-token";
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) {
  sessionStorage.setItem(KEY, given);
  history.replaceState(null, "", location.pathname);
}

export class Refused extends Error {
  constructor(status, detail, column) {
    super(detail);
    this.status = status;
    this.column = column;
  }
}

async function call(path, options = {}) {
  const headers = { ...options.headers };
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The service does not answer. Is the command that opened this page still running?");
  }
  const content = await answer.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
  if (answer.ok && content !== null) return content;
  if (answer.status === 401) throw new Refused(401, "A token is needed: open the whole address that the command printed, with what follows the #.");
  throw new Refused(answer.status, content?.detail ?? `The service answered with status ${answer.status}.`, content?.column);
}

export const describe = () => call("model");

export const predict = (question, signal) => call("predict", {
  signal,
  method: "POST",
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(question),
});

// Runs the newest of a stream of jobs: while one is under way, only the last that came meanwhile is kept. The one under
// way is overtaken: its signal says so, and nothing of it may be shown; unless the new one comes `gently`, as the next
// place of a slider that is being moved does.
export function newest(run) {
  let running = null, next = null;
  async function start(job, { gently = false } = {}) {
    next = { job };
    if (running !== null) {
      if (!gently) running.abort();
      return;
    }
    try {
      while (next !== null) {
        const { job: newer } = next;
        next = null;
        running = new AbortController();
        await run(newer, running.signal);
      }
    } finally { running = null; }
  }
  start.stop = () => { next = null; running?.abort(); };
  return start;
}
