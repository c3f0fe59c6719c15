// Lines to frames and back: one JSON object per line, with a limit on its length.

/** The longest line either side accepts, without its line break. */
export const MAX_LINE_BYTES = 16 * 1024 * 1024;

const LINE_BREAK = 0x0a;
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** The host sent something that is not a frame. */
export class ProtocolError extends Error {}

/** Cuts chunks into lines. Never holds more than one line that is not complete. */
export class LineSplitter {
  #pieces = [];
  #bytes = 0;

  /** The lines that a chunk completes, without their line breaks. */
  *push(chunk) {
    let start = 0;
    for (let end; (end = chunk.indexOf(LINE_BREAK, start)) >= 0; start = end + 1) {
      this.#keep(chunk.subarray(start, end));
      yield Buffer.concat(this.#pieces);
      this.#pieces = [];
      this.#bytes = 0;
    }
    this.#keep(chunk.subarray(start));
  }

  /** Checks that nothing is left. */
  finish() {
    if (this.#bytes > 0) throw new ProtocolError('the last line is incomplete');
  }

  #keep(piece) {
    this.#bytes += piece.length;
    if (this.#bytes > MAX_LINE_BYTES) {
      throw new ProtocolError(`a line longer than ${MAX_LINE_BYTES} bytes`);
    }
    if (piece.length > 0) this.#pieces.push(piece);
  }
}

/** A line as a frame; null for a blank line. */
export function decode(line) {
  let frame;
  try {
    const text = UTF8.decode(line);
    if (text.trim() === '' && !text.includes('\ufeff')) return null;
    frame = JSON.parse(text);
  } catch (error) {
    throw new ProtocolError(`a line that is not JSON: ${error.message}`);
  }
  if (typeof frame?.t !== 'string') {
    throw new ProtocolError('a line that is not an object with a string "t"');
  }
  return frame;
}

/** A frame as a line. */
export function encode(frame) {
  let text = JSON.stringify(frame);
  if (text.includes('\\ud')) text = text.replace(/\\(u[d][89a-f]..|.)/g, replaceHalfPair);
  const line = Buffer.from(`${text}\n`);
  if (line.length > MAX_LINE_BYTES + 1) {
    throw new RangeError(`a frame of ${line.length - 1} bytes, more than ${MAX_LINE_BYTES}`);
  }
  return line;
}

/** Half a surrogate pair, which is what JSON.stringify escapes like this, is no text. */
function replaceHalfPair(escape, code) {
  return code.length > 1 ? '\\ufffd' : escape;
}
