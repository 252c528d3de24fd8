/** What in a tokenizer.json cannot be streamed exactly; the message continues "tokenizer.json has …". */
export class Unstreamable extends Error {}
