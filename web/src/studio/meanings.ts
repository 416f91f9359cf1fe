// What each picture means, and what it does not say. By the names of views; the rest say it themselves.

export interface Meaning { title: string; means: string; caveat: string }

const MEANINGS: Record<string, [title: string, means: string, caveat: string]> = {
  attention: ["Attention", "Each row is a word or token; its colours are its weights for the columns, which sum to 1: of one head, or the mean of all.", "A weight says what was read, not why a word was chosen: silence a head to see what it does."],
  links: ["Links", "A line from each word to those it attends to, as thick as the weight.", "By default only the strongest line of each word is drawn (all of them in a tie); a silenced head has no lines."],
  heads: ["Heads", "All layers and heads as small maps; click one to show it in every picture of the page.", "Head names are a rule of thumb for this sentence; a decoder's refer to the word before the one produced."],
  picture: ["Attention on the picture", "Weights over the picture for each word or layer: tinted parts have weight.", "The cells are as large as the patches of the model, not finer."],
  probabilities: ["Probabilities", "The probability of each token, and its alternatives.", "p of a token given those before it, not of the whole output."],
  nbest: ["N best", "The outputs of the search, best first, and how they differ from the best.", "The score is that of the search, including its length penalty."],
  growing: ["A growing sentence", "Each row is the answer to the source up to that word; a cell is a word, light if the reference has it in this order. Compare a run without attention with one that has it.", "The reference is from the test data, or the target on the left; other words may be right too."],
  masks: ["Masks", "Which positions each position may attend to: causal, window, padding.", "A position that may be attended to need not get weight."],
  gates: ["Gates", "How far each gate is open at each token: 0 closed, 1 open.", "Rows are single units, the 24 that change most over the text; the others move less."],
  gradients: ["Gradients over distance", "How much the last output depends on a token at each distance.", "For one text; other texts give different curves."],
  model: ["Model", "Each block as wide as its vectors and as high as it has parameters, by square roots; the grey residual stream passes beside branches, whose outputs are added to it.", "Point at a block for its equation; a click on attention or a recurrent cell opens its computation step by step."],
  exposure: ["Exposure bias", "Error at each position, given the true tokens or rows, and given the model's own.", "A text may continue well after leaving the reference: the gap is an upper bound."],
  horizon: ["Error by horizon", "Mean squared error at each step ahead, beside naive forecasts.", "On scaled values, over the whole split; this takes a while."],
  forecast: ["Forecast", "The input, the forecast with its quantiles, and the weights on the past.", "The band is the model's own doubt, not a promise."],
  curves: ["Curves", "Training curves: loss, learning rate, scores, speed.", "Steps with different batch sizes are different amounts of work."],
  health: ["Health", "Gradients and updates of each module during training.", "An update near a thousandth of its weight is usual."],
  positions: ["Positions", "The encoding of each position, and how similar positions are.", "How the model uses it is another question."],
  rollout: ["Rollout", "Attention multiplied through the layers, including residuals (Abnar & Zuidema, 2020).", "It leaves out what values and feed-forward layers do."],
  relevance: ["Relevance", "What counted for each word or label, or for it rather than another, by attention × gradient (Chefer et al., 2021), gradient × input, integrated gradients, occlusion or value zeroing.", "Methods disagree: faithfulness tests them."],
  faithfulness: ["Faithfulness", "What the answer loses as words are deleted, the most relevant first by each method, beside random orders; in brackets the area between them.", "A deleted word becomes the unknown word, which favours methods that compare with it."],
  patching: ["Patching", "How much of the answer to another text comes back if one state of that text is put into the run: 0 none, 1 all. Without another text, the states of this one are put into the run on unknown words.", "Both texts must have as many tokens; states may work only together."],
  beam: ["Beam", "The search step by step: the best hypothesis on top, dropped ones dashed.", "A hypothesis dropped early might have become the best."],
  ablation: ["Ablation", "How much the loss grows with each head silenced.", "Heads that do the same job cover for each other."],
  permutation: ["Permutation", "What changes when the source words are shuffled.", "One shuffle of one sentence."],
  states: ["Hidden states", "How the hidden state moves from token to token: its first three principal components, one line each.", "They explain only part of the variance; the caption says how much."],
  scene: ["Step by step", "The model as one picture: from the whole into its boxes, down to one query in the model's own numbers.", "Double-click a cell of an attention map, or press Enter, to open it for that query; for a mean of heads, the head with the most weight there."],
  forward: ["Forward pass", "Every stage of one forward pass in order: its input, its equation and its output, with the model's own numbers; forward and backward.", "Each row is a position; choose a position, a head or a block, or step with , and ."],
  surface: ["Loss surface", "The loss around the weights, along two random directions (Li et al., 2018).", "Only two of very many directions; this takes a while."],
  lens: ["Logit lens", "What the model would predict if it ended after each layer.", "Early layers were not trained to be read this way."],
};

export function meaningOf(name: string, summary: string): Meaning {
  const [title, means, caveat] = MEANINGS[name] ?? [name.replaceAll("_", " ").replace(/^./, (c) => c.toUpperCase()), summary, ""];
  return { title, means, caveat };
}
