// Reads one streamed answer of the router; copy it, it needs nothing but a browser or Node.js 20.
//
//     STREAMING ──────────────┬──> COMPLETED     a finish_reason came: this is the answer
//         │  ^                ├──> INTERRUPTED   something came, and it is not the whole answer
//         └──┘ reset_stream   └──> FAILED        nothing came
//
//     const reader = new Reader();
//     await reader.read(fetch(url, { method: 'POST', headers, body }), ([kind, value]) => {
//       if (kind === 'text') show(value);
//       else if (kind === 'reset') forgetWhatWasShown();
//     });
//     if (reader.state === State.COMPLETED) run(reader.toolCalls);

export const State = Object.freeze({
  STREAMING: 'streaming',
  COMPLETED: 'completed',
  INTERRUPTED: 'interrupted',
  FAILED: 'failed',
});

const SAID = [['text', 'content'], ['reasoning', 'reasoning_content'], ['refusal', 'refusal']];

/** One streamed answer (its first choice). */
export class Reader {
  state = State.STREAMING;
  /** The router's error object, once there is one. */
  error = null;
  /** The router's metadata, if it came. */
  router = null;
  usage = null;
  #decoder = new TextDecoder();
  #line = '';
  #event = '';
  #data = [];
  #calls = new Map();

  constructor() {
    this.#forget();
  }

  /** Read a response, or a promise of one, to its end; whatever happens becomes a state. */
  async read(response, tell = () => {}) {
    try {
      const got = await response;
      if (!got.ok) return this.refuse(got.status, await got.text());
      for await (const data of got.body) this.feed(data).forEach(tell);
    } catch (error) {
      return this.close({ message: String(error), code: null });
    }
    return this.close();
  }

  /** Take the next bytes of the body. Returns what they say, in order: ['text', …],
   *  ['reasoning', …], ['refusal', …], ['reset', reason] and ['end', state]. */
  feed(data) {
    const out = [];
    const lines = (this.#line + this.#decoder.decode(data, { stream: true })).split('\n');
    this.#line = lines.pop();
    for (const line of lines) this.#takeLine(line.replace(/\r$/, ''), out);
    return out;
  }

  /** The body is over, or its connection broke. Returns the state. */
  close(error = null) {
    if (this.state === State.STREAMING) {
      // A finish that was seen is an end, whatever breaks after it.
      this.#end(this.finishReason ? State.COMPLETED : null, this.finishReason ? null : error, []);
    }
    return this.state;
  }

  /** The response was no 200. */
  refuse(status, body) {
    let error = { message: `HTTP ${status}`, code: null };
    try {
      error = JSON.parse(body).error ?? error;
    } catch { /* it is no JSON */ }
    this.#end(State.FAILED, error, []);
    return this.state;
  }

  /** The text without what a continuation replaced. Until the end, some of it may yet be. */
  get answer() {
    const text = Array.from(this.text); // offsets count characters, not UTF-16 units
    const ranges = this.router?.superseded ?? [];
    for (const [start, end] of [...ranges].reverse()) text.splice(start, end - start);
    return text.join('');
  }

  /** The calls to run: none unless the answer is complete, for a part of a call is none. */
  get toolCalls() {
    const whole = this.state === State.COMPLETED;
    return whole && ['tool_calls', 'stop'].includes(this.finishReason) ? this.begunToolCalls : [];
  }

  /** The calls as far as they came: to be shown, never to be run. */
  get begunToolCalls() {
    return [...this.#calls.keys()].sort((a, b) => a - b).map((index) => this.#calls.get(index));
  }

  #forget() {
    this.text = this.reasoning = this.refusal = '';
    this.finishReason = null;
    this.#calls.clear();
  }

  #takeLine(line, out) {
    if (this.state !== State.STREAMING) return;
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'event') this.#event = value;
    else if (field === 'data') this.#data.push(value);
    else if (!line && this.#data.length) {
      const [name, data] = [this.#event, this.#data.join('\n')];
      [this.#event, this.#data] = ['', []];
      this.#takeEvent(name, data, out);
    }
  }

  #takeEvent(name, data, out) {
    if (data === '[DONE]') {
      this.#end(this.finishReason ? State.COMPLETED : null, null, out);
      return;
    }
    const value = JSON.parse(data);
    if (name === 'reset_stream') {
      this.#forget();
      out.push(['reset', value.reason]);
    } else if (name === 'partial_complete') {
      const error = { message: value.reason, code: 'partial_complete', router: value.router };
      this.#end(null, error, out);
    } else if (value.error) this.#end(null, value.error, out);
    else this.#takeChunk(value, out);
  }

  #takeChunk(chunk, out) {
    this.usage = chunk.usage ?? this.usage;
    this.router = chunk.router ?? this.router;
    for (const choice of chunk.choices ?? []) {
      if (choice.index) continue;
      const delta = choice.delta ?? {};
      this.finishReason = choice.finish_reason ?? this.finishReason;
      for (const [kind, field] of SAID) {
        if (delta[field]) {
          this[kind] += delta[field];
          out.push([kind, delta[field]]);
        }
      }
      for (const part of delta.tool_calls ?? []) this.#takeCall(part);
    }
  }

  #takeCall({ index, id, function: called = {} }) {
    const call = this.#calls.get(index) ?? { id: '', name: '', arguments: '' };
    this.#calls.set(index, call);
    call.id += id ?? '';
    call.name += called.name ?? '';
    call.arguments += called.arguments ?? '';
  }

  #end(state, error, out) {
    if (state === null) {
      const came = this.text || this.reasoning || this.refusal || this.#calls.size;
      state = came ? State.INTERRUPTED : State.FAILED;
      error ??= { message: 'The stream ended without a finish.', code: null };
    }
    this.state = state;
    this.error = error;
    this.router = error?.router ?? this.router;
    out.push(['end', state]);
  }
}
