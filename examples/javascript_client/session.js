// A session as docs/protocol.md describes it: the same environments on one stream at a time, which is opened anew
// whenever it breaks. `tick` then just takes longer.

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import { Full, Lost, Refused, RunFinished, Stream } from './stream.js';

export { Refused, RunFinished } from './stream.js';
export const FIRST = 1;
export const TERMINATED = 2;
export const TRUNCATED = 4;
export const RESTARTED = 8;

const SILENCE_MS = 15_000; // the broker gives a sign of life every 3 s
const PATIENCE_MS = 300_000; // with a broker or a learner that is away
const FIRST_WAIT_MS = 100;
const MAX_WAIT_MS = 3_000;
const LEARNER_AWAY = 'learner is not there';

export class Session {
  #address;
  #hello;
  #stream = null;
  #welcomed = false;
  #closed = false;
  #sequence = 0;
  #goodNews = Date.now();

  // `spec` is an EnvironmentSpec; `numEnvs` environments step together.
  constructor(address, spec, numEnvs, { actorId = '', role = 'ROLE_TRAIN' } = {}) {
    this.#address = address;
    this.#hello = { protocol_version: 1, session_id: randomBytes(16), actor_id: actorId, role, num_envs: numEnvs, spec };
  }

  // Sends step t of all environments and resolves with the actions, a Buffer a leaf.
  //   observation: a Buffer a leaf
  //   reward: Float32Array, flags: Uint8Array
  //   episodes: [{ env, episode_return, length }] that ended with this tick
  // Throws RunFinished when training is complete, Refused when the server does not want the session.
  async tick({ observation, reward, flags, episodes = [], envMs = 0 }) {
    const tick = {
      sequence: this.#sequence,
      observation,
      reward: Buffer.from(reward.buffer, reward.byteOffset, reward.byteLength),
      flags,
      episodes,
      env_ms: envMs,
    };
    for (let attempt = 0; ; attempt++) {
      try {
        if (this.#stream === null) await this.#open();
        const { actions } = await this.#ask({ tick }, 'actions');
        this.#sequence += 1;
        return actions.action;
      } catch (error) {
        await this.#recover(error, attempt);
      }
    }
  }

  // Says Goodbye. A `tick` that waits meanwhile fails.
  async close(reason = 'done') {
    this.#closed = true;
    const stream = this.#stream;
    this.#stream = null;
    await stream?.part(reason);
  }

  async #open() {
    this.#stream = new Stream(this.#address);
    this.#welcomed = false;
    await this.#ask({ hello: this.#hello }, 'welcome');
    this.#welcomed = true;
  }

  // Sends a message and resolves with the answer of that kind.
  async #ask(message, wanted) {
    const stream = this.#stream;
    stream.send(message);
    for (;;) {
      const answer = await stream.receive(SILENCE_MS);
      switch (answer.kind) {
        case wanted:
          this.#goodNews = Date.now();
          return answer;
        case 'waiting':
          this.#bear(answer.waiting.reason);
          break;
        case 'drain':
          if (answer.drain.code === 'FINISHED') {
            await this.close();
            throw new RunFinished(answer.drain.reason);
          }
          throw new Lost(`the server restarts: ${answer.drain.reason}`);
        default:
          throw new Refused(`expected ${wanted}, got ${answer.kind}`);
      }
    }
  }

  // A busy learner is waited for without limit, one that is away is not.
  #bear(reason) {
    if (!reason.startsWith(LEARNER_AWAY)) this.#goodNews = Date.now();
    else if (Date.now() - this.#goodNews > PATIENCE_MS) throw new Refused(`gave up: ${reason}`);
  }

  // Closes the stream and waits as long as attempt number `attempt` asks for; throws where another cannot help.
  async #recover(error, attempt) {
    this.#stream?.close();
    this.#stream = null;
    const again = error instanceof Lost || (error instanceof Full && !this.#welcomed);
    if (!again || this.#closed) throw error;
    if (Date.now() - this.#goodNews > PATIENCE_MS) throw new Refused(`gave up: ${error.message}`);
    const most = Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** attempt);
    await sleep(most * (0.5 + 0.5 * Math.random()));
  }
}
