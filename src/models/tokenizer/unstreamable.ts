/** A part of a tokenizer.json that cannot be streamed exactly; the message continues "tokenizer.json has …". */
export class Unstreamable extends Error {}
