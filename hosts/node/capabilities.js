// What the example agent can do, and no more.
export default {
  streaming: 'native',
  tool_read: 'native',
  tool_write: 'native',
  tool_edit: { restricted: { reason: 'it can only append to a file' } },
};
