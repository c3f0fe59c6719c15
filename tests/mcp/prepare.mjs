// Loaded before the conformance suite: its requests carry the key of the server they go to, and the servers
// it starts listen on this machine only.
import http from 'node:http';
import net from 'node:net';
import { realpathSync } from 'node:fs';
import { createRequire } from 'node:module';

const listen = net.Server.prototype._listen2;
net.Server.prototype._listen2 = function (address, port, type, ...rest) {
  return address ? listen.call(this, address, port, type, ...rest) : listen.call(this, '127.0.0.1', port, 4, ...rest);
};

if (process.env.ABP_KEY) {
  const authorization = `Bearer ${process.env.ABP_KEY}`;
  const { getGlobalDispatcher, setGlobalDispatcher } = createRequire(realpathSync(process.argv[1]))('undici');
  const withKey = (dispatch) => (options, handler) => {
    const headers = Array.isArray(options.headers)
      ? [...options.headers, 'authorization', authorization]
      : { ...options.headers, authorization };
    return dispatch({ ...options, headers }, handler);
  };
  setGlobalDispatcher(getGlobalDispatcher().compose(withKey));
  const request = http.request;
  http.request = (...asked) => {
    const made = request(...asked);
    made.setHeader('authorization', authorization);
    return made;
  };
}
