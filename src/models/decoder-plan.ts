/** What a family says of its decoders; decoder.ts makes the graph. */

/** A mixture of experts; names of tensors are those behind the layer's prefix, `{e}` stands for the expert. */
export interface ExpertsPlan {
  readonly count: number
  /** How many experts a token goes to. */
  readonly chosen: number
  /** Channels inside an expert. */
  readonly inner: number
  /** Whether the weights of the chosen experts are divided by their sum. */
  readonly normalised: boolean
  readonly router: string
  readonly gate: string
  readonly up: string
  readonly down: string
}

/** What sets layers apart. Layers that are alike share one object. */
export interface LayerKind {
  /** The positions that it sees, the row's own included; null: all. */
  readonly window: number | null
  /** How the pairs of a head turn; null: queries and keys know no positions. */
  readonly increments: readonly number[] | null
  /** Whether it has experts in place of the MLP. */
  readonly sparse?: boolean
}

export interface DecoderPlan {
  readonly vocab: number
  readonly width: number
  readonly layers: number
  readonly heads: number
  readonly keyHeads: number
  readonly headWidth: number
  readonly inner: number
  readonly positions: number
  readonly eps: number
  /** What each layer is; asked once the tensors have told how many there are. */
  readonly kinds: (layers: number) => readonly LayerKind[]
  /** Biases of q, k and v; of o; of the MLP's matrices. */
  readonly biases?: { readonly qkv?: boolean; readonly o?: boolean; readonly mlp?: boolean }
  /** Whether queries and keys are normalised within each head, before they turn. */
  readonly headNorms?: boolean
  /** Norms multiply by 1 + weight. */
  readonly onePlus?: boolean
  /** What attention and the MLP give is normalised before it is added. */
  readonly postNorms?: boolean
  /** Of the scores; default: 1/√d. */
  readonly scale?: number
  /** Inside the MLP; default: silu. */
  readonly activation?: 'silu' | 'gelu'
  readonly experts?: ExpertsPlan
  /** What embeddings are multiplied by. */
  readonly embeddingScale?: number
  /** logits = cap · tanh(logits / cap). */
  readonly logitCap?: number | null
  /** Whether the head is the embedding. A package without a head has it so in any case. */
  readonly tied: boolean
  /** What stands before "embed_tokens", "layers" and "norm"; default: "model.". */
  readonly prefix?: string
  /** Tensors of other parts of the package. */
  readonly foreign?: (name: string) => boolean
}
