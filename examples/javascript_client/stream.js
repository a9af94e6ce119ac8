// One `Inference.Session` stream on a connection of its own, and what its end means to a client.

import { fileURLToPath } from 'node:url';

import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

const PROTO = fileURLToPath(new URL('../../proto', import.meta.url));
const OPTIONS = { includeDirs: [PROTO], keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true };
const { Inference } = grpc.loadPackageDefinition(
  protoLoader.loadSync('seedrl_proto/v1/inference.proto', OPTIONS),
).seedrl_proto.v1;

const { status } = grpc;
const PART_MS = 2000;

// The run is finished: exit with success.
export class RunFinished extends Error {}
// Another try cannot help: exit with failure.
export class Refused extends Error {}
// The learner has no room: try again later.
export class Full extends Error {}
// The peer is gone: reconnect.
export class Lost extends Error {}

const REFUSALS = [
  status.INVALID_ARGUMENT,
  status.FAILED_PRECONDITION,
  status.UNIMPLEMENTED,
  status.INTERNAL,
  status.UNAUTHENTICATED,
];

function errorOf({ code, details }) {
  if (REFUSALS.includes(code)) return new Refused(details);
  if (code === status.OUT_OF_RANGE) return new RunFinished(details);
  if (code === status.RESOURCE_EXHAUSTED) return new Full(details);
  return new Lost(details);
}

export class Stream {
  #client;
  #call;
  #messages = []; // that nobody has waited for yet
  #waiting = null; // resolves with a message, or rejects with the reason why there will be none
  #end = null; // that reason

  constructor(address) {
    // Without the shared pool a new connection is made at once: how long to wait is the session's to say.
    this.#client = new Inference(address, grpc.credentials.createInsecure(), { 'grpc.use_local_subchannel_pool': 1 });
    this.#call = this.#client.Session();
    this.#call.on('data', (message) => this.#receive(message));
    this.#call.on('error', () => {}); // its status follows
    this.#call.on('status', (end) => this.#finish(errorOf(end)));
  }

  send(message) {
    this.#call.write(message);
  }

  // The next message; an error when the stream has ended, or when nothing comes for so long.
  receive(silenceMs) {
    if (this.#messages.length) return Promise.resolve(this.#messages.shift());
    if (this.#end) return Promise.reject(this.#end);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#finish(new Lost(`nothing came for ${silenceMs} ms`)), silenceMs);
      this.#waiting = (error, message) => {
        clearTimeout(timer);
        this.#waiting = null;
        error ? reject(error) : resolve(message);
      };
    });
  }

  // Says Goodbye and waits shortly for the server to end the stream.
  async part(reason) {
    this.send({ goodbye: { reason } });
    this.#call.end();
    try {
      for (;;) await this.receive(PART_MS);
    } catch {
      this.close();
    }
  }

  close() {
    this.#call.cancel();
    this.#client.close();
  }

  #receive(message) {
    if (this.#waiting) this.#waiting(null, message);
    else this.#messages.push(message);
  }

  #finish(error) {
    this.#end ??= error;
    if (this.#waiting) this.#waiting(this.#end);
  }
}
