-- a: parts in the queue; unit: parts of one hit. A queue that drains is a bucket of tokens that fills, seen from the other
-- side; only the default capacity differs, which the request brings.
local leaky_bucket = token_bucket
