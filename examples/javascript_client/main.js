// Plays Catch by the actions of a learner: node main.js ADDRESS [NUM_ENVS]

import { hostname } from 'node:os';

import { Catch, NUM_ACTIONS, SIZE } from './catch.js';
import { FIRST, RunFinished, Session, TERMINATED } from './session.js';

const SPEC = {
  environment_id: 'JavaScriptCatch',
  observation: [{ path: 'observation', dtype: 'DTYPE_UINT8', shape: [SIZE, SIZE, 2], low: [0], high: [1] }],
  action: [{ path: 'action', dtype: 'DTYPE_INT64', shape: [], low: [0], high: [NUM_ACTIONS - 1] }],
  action_repeat: 1,
};
const BOARD_BYTES = SIZE * SIZE * 2;
const TELL_EVERY = 1000; // episodes

const [address, numEnvsText = '32'] = process.argv.slice(2);
const numEnvs = Number(numEnvsText);
if (!address || !Number.isInteger(numEnvs) || numEnvs < 1) {
  console.error('usage: node main.js ADDRESS [NUM_ENVS], with ADDRESS host:port or unix:PATH of a broker');
  process.exit(2);
}

// The environments as one: all that a tick needs is written into the same buffers again and again.
const games = Array.from({ length: numEnvs }, () => new Catch());
const boards = Buffer.alloc(numEnvs * BOARD_BYTES);
const step = { observation: [boards], reward: new Float32Array(numEnvs), flags: new Uint8Array(numEnvs), episodes: [] };
const returns = []; // of the last episodes
let numEpisodes = 0;

// Steps each environment, or resets it where its episode has ended (at first, everywhere); that ignores its action.
function advance(action) {
  step.episodes = [];
  games.forEach((game, env) => {
    const begins = !action || step.flags[env] & TERMINATED;
    if (begins) game.reset();
    const { reward, ended } = begins ? { reward: 0, ended: false } : game.step(Number(action.readBigInt64LE(8 * env)));
    step.reward[env] = reward;
    step.flags[env] = begins ? FIRST : ended ? TERMINATED : 0;
    if (ended) step.episodes.push({ env, episode_return: reward, length: SIZE - 1 });
    game.observe(boards.subarray(env * BOARD_BYTES, (env + 1) * BOARD_BYTES));
  });
}

function count(episodes) {
  for (const { episode_return } of episodes) {
    returns.push(episode_return);
    if (returns.length > TELL_EVERY) returns.shift();
    if (++numEpisodes % TELL_EVERY === 0) {
      console.log(`${numEpisodes} episodes, mean return ${returns.reduce((sum, one) => sum + one) / returns.length}`);
    }
  }
}

const session = new Session(address, SPEC, numEnvs, { actorId: `${hostname()}-javascript` });
let stopping = false;
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, async () => {
    stopping = true;
    await session.close(signal);
    process.exit(0);
  });
}

try {
  advance(null);
  for (;;) {
    const [action] = await session.tick(step);
    const began = performance.now();
    advance(action);
    step.envMs = performance.now() - began;
    count(step.episodes);
  }
} catch (error) {
  if (error instanceof RunFinished) {
    console.log(`finished: ${error.message}`);
  } else if (!stopping) {
    console.error(`error: ${error.message}`);
    process.exitCode = 1;
  }
}
