package algo

// leakyBucket keeps the length of the queue, in parts of a hit. A queue that drains is a bucket of tokens that fills,
// seen from the other side: what is in the queue is what is missing of the tokens. The two differ in the size that they
// have by default (ratelimit.Limit.Burst), and in what people want of them.
type leakyBucket struct{ tokenBucket }
