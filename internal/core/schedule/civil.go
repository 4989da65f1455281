package schedule

import "time"

// Wall times are int64 seconds since 1970-01-01T00:00:00 as the clock on the
// wall shows them: arithmetic without a zone. Only zone.go turns them into
// instants.
const (
	daySeconds = 24 * 60 * 60
	monthCount = (LastYear - FirstYear + 1) * 12

	// never is a wall time or instant after every other.
	never = int64(1)<<62 - 1
)

// A month's shape is its length and the weekday it begins with: 28 of them
// exist, and which days a day rule picks depends on nothing else.
const shapes = 4 * 7

func shapeOf(length int, first time.Weekday) uint8 {
	return uint8((length-28)*7 + int(first))
}

// month is one month of FirstYear to LastYear.
type month struct {
	first int32 // days from 1970-01-01 to its first day
	shape uint8
}

// length in days.
func (m month) length() int { return 28 + int(m.shape)/7 }

// months holds all of them in order, and the one after, which ends the last.
var months = func() (t [monthCount + 1]month) {
	for i := range t {
		first := time.Date(FirstYear, time.Month(1+i), 1, 0, 0, 0, 0, time.UTC)
		length := first.AddDate(0, 1, -1).Day()
		t[i] = month{int32(first.Unix() / daySeconds), shapeOf(length, first.Weekday())}
	}
	return t
}()

// monthOf gives the index in months of a day counted from 1970-01-01, which
// must lie in FirstYear to LastYear.
func monthOf(day int) int {
	// 400 years are 146,097 days and 4,800 months, so this is at most one off.
	i := min(day*4800/146097, monthCount-1)
	if day < int(months[i].first) {
		return i - 1
	}
	if day >= int(months[i+1].first) {
		return i + 1
	}
	return i
}
