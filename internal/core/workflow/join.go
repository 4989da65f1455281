package workflow

import (
	"fmt"
	"math/big"
	"strconv"
)

// tally counts how the branches of a split have ended so far. Cancelled ones are not counted.
type tally struct {
	total, succeeded, failed int
}

// decision is what a join says about a tally.
type decision uint8

const (
	undecided decision = iota
	met
	missed
)

// needed is how many of total branches must succeed; for JoinPartialTimeout, end.
func (j *Join) needed(total int) int {
	switch j.Strategy {
	case JoinAll:
		return total
	case JoinQuorum, JoinPartialResults:
		return j.N
	case JoinPercentage:
		return shareOf(j.Share, total)
	}
	return 1
}

// decide says whether the join's condition is met or out of reach. final: no branch will end any more.
func (j *Join) decide(t tally, needed int, final bool) decision {
	ended := t.succeeded + t.failed
	if j.Strategy == JoinPartialTimeout {
		switch {
		case !final && ended < t.total:
			return undecided
		case ended >= needed:
			return met
		}
		return missed
	}
	switch {
	case t.succeeded >= needed:
		return met
	case final || t.total-t.failed < needed:
		return missed
	}
	return undecided
}

// describe says in words what the condition is.
func (j *Join) describe(needed, total int) string {
	switch j.Strategy {
	case JoinAll:
		return "all must succeed"
	case JoinAny:
		return "any must succeed"
	case JoinQuorum:
		return fmt.Sprintf("a quorum of %d must succeed", needed)
	case JoinPercentage:
		return fmt.Sprintf("%s%% must succeed: %d", percent(j.Share), needed)
	case JoinPartialResults:
		return fmt.Sprintf("%d must succeed", needed)
	}
	return "one must end by the timeout"
}

// shareOf is the smallest number that is at least share * total, for the decimal number that share was written as: 0.07 of 100
// is 7, although the float64 nearest to 0.07 is a little above it.
func shareOf(share float64, total int) int {
	product := decimal(share)
	product.Mul(product, new(big.Rat).SetInt64(int64(total)))
	quotient, rest := new(big.Int).QuoRem(product.Num(), product.Denom(), new(big.Int))
	n := int(quotient.Int64())
	if rest.Sign() > 0 {
		n++
	}
	return n
}

// decimal is the shortest decimal number that reads as f.
func decimal(f float64) *big.Rat {
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	if !ok { // not a number; validation rejects it
		return big.NewRat(1, 1)
	}
	return r
}

// percent writes a share as a percentage: 0.07 is "7".
func percent(share float64) string {
	p := decimal(share)
	p.Mul(p, big.NewRat(100, 1))
	f, _ := p.Float64()
	return strconv.FormatFloat(f, 'g', -1, 64)
}
