// What each picture means, and what it does not say. By the names of views; the rest say it themselves.

export interface Meaning { title: string; means: string; caveat: string }

const MEANINGS: Record<string, Meaning> = {
  attention: { title: "Attention", means: "Each row is a word, its colours are the weights with which it mixes the values of the columns; they sum to 1.", caveat: "A weight says what was read, not why a word was chosen: silence a head to see what it does." },
  links: { title: "Links", means: "A line from each word to those it attends to, as thick as the weight.", caveat: "By default only the strongest of each word is drawn (several where they are equal); a silenced head has no lines." },
  heads: { title: "Heads", means: "All layers and heads as small maps; click one to show it in every picture of the page.", caveat: "The names of heads are a rule of thumb for this sentence; those of a decoder compare with the word before the one that is produced." },
  coverage: { title: "Coverage", means: "The weight on each source word, summed over all rows; the dashed line is 1, the weight of one row. Near 0 a word may have been left out, far above 1 said twice.", caveat: "Function words need little weight; a sink at the end gathers much." },
  picture: { title: "Attention on the picture", means: "Weights over the picture for each word or layer: tinted parts have weight.", caveat: "The cells are as large as the patches of the model, not finer." },
  probabilities: { title: "Probabilities", means: "The probability of each token, and its alternatives.", caveat: "p of a token after those before it, not of the whole." },
  nbest: { title: "N best", means: "The outputs of the search, best first, and how they differ from the best.", caveat: "The score is the search's: a penalty for length is in it." },
  lengths: { title: "Scores by length", means: "BLEU and chrF of sources as long as each other, with bootstrap intervals.", caveat: "Bins with few sentences have wide intervals." },
  growing: { title: "A growing sentence", means: "Each row is the answer to the source up to that word; a cell is a word, light where the reference has it in this order. Choose a run without attention beside one with it.", caveat: "The reference is that of the test data, or the target at the left; other words may be right too." },
  importance: { title: "Importance of heads", means: "Which heads align, are sure, or look broadly: means over many pairs, between words, without the end of the sentence.", caveat: "A sure head may still be useless to the output." },
  masks: { title: "Masks", means: "Which positions each position may attend to: causal, window, padding.", caveat: "A position that may be attended to need not get weight." },
  gates: { title: "Gates", means: "How far each gate is open at each token: 0 closed, 1 open.", caveat: "Rows are single units, the 24 that change most over the text; the others move less." },
  gradients: { title: "Gradients over distance", means: "How much the last output would change with a token so far back.", caveat: "For one text; other texts give other curves." },
  model: { title: "Model", means: "Each block as wide as its vectors and as high as it has parameters, by square roots; the grey stream passes beside branches, whose outputs are added to it.", caveat: "Point at a block for its equation; a click on attention or a recurrent cell opens its computation step by step." },
  exposure: { title: "Exposure bias", means: "Error at each position, given the true tokens or rows, and given the model's own.", caveat: "A text that has left the true one may continue well and still differ: the gap is an upper bound." },
  horizon: { title: "Error by horizon", means: "Mean squared error at each step ahead, beside naive forecasts.", caveat: "On scaled values, over the whole split; this takes a while." },
  forecast: { title: "Forecast", means: "What was read, the forecast with its quantiles, and the weights on the past.", caveat: "The band is the model's own doubt, not a promise." },
  curves: { title: "Curves", means: "Training curves: loss, learning rate, scores, speed.", caveat: "Steps of different batch sizes are not the same work." },
  health: { title: "Health", means: "Gradients and updates of each module over the training.", caveat: "An update near a thousandth of its weight is usual." },
  positions: { title: "Positions", means: "The encoding of each position, and how similar positions are.", caveat: "How the model uses it is another question." },
  schedule: { title: "Learning rate", means: "The rate at each step of the training.", caveat: "Adaptive optimizers scale it for each weight." },
  rollout: { title: "Rollout", means: "Attention multiplied through the layers, residuals in it (Abnar & Zuidema, 2020).", caveat: "It leaves out what values and feed-forward layers do." },
  relevance: { title: "Relevance", means: "Attention weighted by its gradient (Chefer et al., 2021): what counted for this output.", caveat: "A first-order guess at one output." },
  beam: { title: "Beam", means: "The search step by step: the best hypothesis on top, dropped ones dashed.", caveat: "A hypothesis that was dropped early might have become better." },
  ablation: { title: "Ablation", means: "How much the loss grows with each head silenced.", caveat: "Heads that do the same cover for each other." },
  permutation: { title: "Permutation", means: "What changes where the words of the source are shuffled.", caveat: "One shuffle of one sentence." },
  without: { title: "Without order, positions or scaling", means: "The answer and a map unchanged, with the words shuffled, without position encodings, or without ÷ √K.", caveat: "The weights were trained with what is dropped: another training might do without." },
  states: { title: "Hidden states", means: "How the hidden state moves from token to token: its first three principal components, a line each.", caveat: "They hold only a share of what differs, which the caption says." },
  steps: { title: "Step by step", means: "One query of one head from query, keys and values to the output, with the model's own numbers; or one step of a recurrent cell.", caveat: "A double click on a cell of an attention map, or Enter, opens it for that query; of a mean of heads it shows the head with most weight there." },
  forward: { title: "Forward pass", means: "Every stage of one forward pass in order: what it reads, its equation, and what it gives, with the model's own numbers; forwards and back.", caveat: "Cells are rows of positions; choose a position, a head or a block, or step with , and ." },
  surface: { title: "Loss surface", means: "The loss around the weights, along two random directions (Li et al., 2018).", caveat: "Two directions of very many; this takes a while." },
  lens: { title: "Logit lens", means: "What the model would say if it ended after each layer.", caveat: "Early layers were not trained to be read this way." },
};

export const meaningOf = (name: string, summary: string): Meaning =>
  MEANINGS[name] ?? { title: name.replaceAll("_", " ").replace(/^./, (c) => c.toUpperCase()), means: summary, caveat: "" };
