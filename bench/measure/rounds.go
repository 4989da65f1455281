package measure

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Cores is how many cores the machine has.
func Cores() int { return runtime.NumCPU() }

// Contender is one row of a table: a name, and what measures it once.
type Contender struct {
	Name string
	Run  func() (Sample, error)
}

// Alone is a contender that is one child by itself.
func Alone(name string, c Child) Contender { return Contender{name, c.Run} }

// Row is what was measured of a contender: medians and spreads of the rounds that count.
type Row struct {
	Name   string             `json:"name"`
	Median map[string]float64 `json:"median"`
	Least  map[string]float64 `json:"least"`
	Most   map[string]float64 `json:"most"`
	Rounds int                `json:"rounds"`          // that count
	Noisy  int                `json:"noisy"`           // of them, those in which neighbours used more than half a core
	Others float64            `json:"others"`          // median of the cores that neighbours used
	Fault  string             `json:"fault,omitempty"` // why there is nothing
}

// quiet is how many cores neighbours may use in a round that counts.
const quiet = 0.5

// enough is how many rounds must count.
const enough = 3

// Rounds measures contenders in turn, the given number of times.
func Rounds(rounds int, contenders []Contender, tell func(string)) []Row {
	type measured struct {
		sample Sample
		others float64
	}
	all := make([][]measured, len(contenders))
	faults := make([]error, len(contenders))
	for round := range rounds {
		for i, c := range contenders {
			if faults[i] != nil {
				continue
			}
			tell(fmt.Sprintf("round %d/%d %s", round+1, rounds, c.Name))
			before := readNoise()
			sample, err := c.Run()
			if err != nil {
				faults[i] = err
				continue
			}
			all[i] = append(all[i], measured{sample, readNoise().others(before)})
		}
	}
	rows := make([]Row, len(contenders))
	for i, c := range contenders {
		row := Row{Name: c.Name, Median: map[string]float64{}, Least: map[string]float64{}, Most: map[string]float64{}}
		if faults[i] != nil {
			row.Fault = faults[i].Error()
		}
		slices.SortFunc(all[i], func(a, b measured) int { return int(math.Copysign(1, a.others-b.others)) })
		values, others := map[string][]float64{}, []float64{}
		for n, m := range all[i] {
			if n >= enough && m.others > quiet {
				break
			}
			row.Rounds++
			if m.others > quiet {
				row.Noisy++
			}
			others = append(others, m.others)
			for name, v := range m.sample {
				values[name] = append(values[name], v)
			}
		}
		row.Others = Median(others)
		for name, v := range values {
			row.Median[name], row.Least[name], row.Most[name] = Median(v), slices.Min(v), slices.Max(v)
		}
		rows[i] = row
	}
	return rows
}

// Median is the middle one, or the mean of the two; 0 of none.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// noise is how busy the machine and how busy this program with its children has been so far.
type noise struct {
	at   time.Time
	busy time.Duration // of all cores
	own  time.Duration
}

func readNoise() noise {
	own := syscallUsage(syscall.RUSAGE_SELF).CPU + syscallUsage(syscall.RUSAGE_CHILDREN).CPU
	return noise{at: time.Now(), busy: busyTime(), own: own}
}

// others is how many cores neighbours used since before.
func (n noise) others(before noise) float64 {
	busy := (n.busy - before.busy) - (n.own - before.own)
	return max(float64(busy)/float64(n.at.Sub(before.at)), 0)
}

// busyTime is the time that cores did not idle, by the first line of /proc/stat, in ticks of 10 ms:
// cpu user nice system idle iowait irq softirq steal (https://man7.org/linux/man-pages/man5/proc_stat.5.html).
func busyTime() time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	ticks := 0
	for i, field := range bytes.Fields(line) {
		switch i {
		case 1, 2, 3, 6, 7, 8:
			n, _ := strconv.Atoi(string(field)) // the kernel writes numbers
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
