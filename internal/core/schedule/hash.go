package schedule

import "math/bits"

// hash spreads flows over a range. It is part of what a flow's schedule means
// and stays the same across versions, machines and restarts: FNV-1a of 64 bits
// (draft-eastlake-fnv), mixed by the finisher of MurmurHash3 since FNV alone
// leaves the high bits of short ids alike.
func hash(flowID, salt string) uint64 {
	h := uint64(14695981039346656037)
	for _, s := range [...]string{salt, "\x00", flowID} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// pick gives a number in [0, n) for a flow; n must be positive.
func pick(flowID, salt string, n uint64) uint64 {
	hi, _ := bits.Mul64(hash(flowID, salt), n)
	return hi
}
