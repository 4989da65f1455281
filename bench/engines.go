package main

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	netresearch "github.com/netresearch/go-cron"
	"github.com/reugn/go-quartz/job"
	"github.com/reugn/go-quartz/quartz"
	robfig "github.com/robfig/cron/v3"

	"github.com/schedulerd/schedulerd/internal/core"
	"github.com/schedulerd/schedulerd/internal/core/flow"
	"github.com/schedulerd/schedulerd/internal/core/schedule"
	"github.com/schedulerd/schedulerd/internal/core/store"
	"github.com/schedulerd/schedulerd/internal/core/workflow"
)

// engine is a scheduler of jobs that are functions.
type engine interface {
	// add gives it a job that is due at every time of a cron text of six fields, or at phase + k × period if that is empty. Before
	// start or after.
	add(n int, due when, job func(fire time.Time)) error
	remove(n int) error
	start() error
	stop()
}

// when is when a job is due.
type when struct {
	cron          string // seconds first
	phase, period time.Duration
}

var engines = map[string]func() engine{
	"schedulerd":         func() engine { return newOurs(store.NewMemory()) },
	"schedulerd, in Go":  func() engine { return newOurs(store.NewMemory()) },
	"heap and workers":   func() engine { return newFloor(false) },
	"heap and goroutine": func() engine { return newFloor(true) },
	"robfig/cron": func() engine {
		return &robfigEngine{cron: robfig.New(robfig.WithSeconds()), ids: map[int]robfig.EntryID{}}
	},
	"netresearch/go-cron": func() engine {
		return &netresearchEngine{cron: netresearch.New(netresearch.WithSeconds()), ids: map[int]netresearch.EntryID{}}
	},
	"gocron":              newGocron,
	"go-quartz":           newQuartz,
	"goroutine and timer": func() engine { return &goroutines{stops: map[int]chan struct{}{}} },
}

func flowID(n int) string { return fmt.Sprintf("flow-%08d", n) }

// ours is the engine of schedulerd.
type ours struct {
	store     store.Store
	scheduler *core.Scheduler
	running   *core.Running
	cron      map[string]*schedule.Schedule // compiled, as all flows with one text may share it
}

func newOurs(s store.Store) *ours {
	return &ours{
		store: s, cron: map[string]*schedule.Schedule{},
		// The limit of runs at once is a safety net that these loads must not hit: a herd of a million is one instant.
		scheduler: core.New(core.Config{Store: s, MaxConcurrentRuns: 1 << 20}),
	}
}

func (e *ours) flow(n int, due when, job func(time.Time)) (*core.Flow, error) {
	compiled := e.cron[due.cron]
	if compiled == nil {
		spec := schedule.Spec{Cron: due.cron}
		if due.cron == "" {
			spec = schedule.Spec{Every: &schedule.Every{Interval: due.period, InitialDelay: due.phase}}
		}
		var err error
		if compiled, err = schedule.Compile(spec, schedule.Options{FlowID: flowID(n), Now: time.Now()}); err != nil {
			return nil, err
		}
		if due.cron != "" {
			e.cron[due.cron] = compiled
		}
	}
	work := workflow.TaskFunc(func(_ context.Context, in *workflow.Invocation) (workflow.Result, error) {
		job(in.FireTime)
		return workflow.Result{}, nil
	})
	return &core.Flow{ID: flowID(n), Schedule: compiled, Workflow: oneState(work), Backoff: flow.DefaultPolicy, Origin: core.FromAPI}, nil
}

// oneState is a workflow of one task.
func oneState(task workflow.Task) *workflow.Workflow {
	return &workflow.Workflow{
		Initial: "work",
		States:  map[string]*workflow.State{"work": {Work: &workflow.Step{Task: task}, Next: "done"}},
		Exits:   map[string]*workflow.Exit{"done": {}},
	}
}

func (e *ours) add(n int, due when, job func(time.Time)) error {
	f, err := e.flow(n, due, job)
	if err != nil {
		return err
	}
	if e.running == nil {
		return e.scheduler.Add(f)
	}
	_, err = e.running.Apply(context.Background(), core.ApplyRequest{Flows: []*core.Flow{f}, Origin: core.FromAPI})
	return err
}

func (e *ours) remove(n int) error {
	_, err := e.running.Delete(context.Background(), flowID(n), "", "")
	return err
}

func (e *ours) start() (err error) {
	e.running, err = e.scheduler.Start(context.Background())
	return err
}

func (e *ours) stop() { _, _ = e.running.Stop(context.Background(), time.Second) }

// floor is as little as a scheduler can be: a heap of due times and a goroutine that hands what is due to workers, in batches, or to a
// goroutine each. It keeps no state and knows no removal.
type floor struct {
	queue      floorQueue
	goroutines bool
	batches    chan []floorItem
	done       chan struct{}
}

type floorItem struct {
	due    time.Time
	period time.Duration
	job    func(time.Time)
}

type floorQueue []floorItem

func (q floorQueue) Len() int           { return len(q) }
func (q floorQueue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q floorQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *floorQueue) Push(x any)        { *q = append(*q, x.(floorItem)) }
func (q *floorQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	*q = old[:len(old)-1]
	return x
}

func newFloor(goroutines bool) *floor {
	return &floor{goroutines: goroutines, batches: make(chan []floorItem, 8), done: make(chan struct{})}
}

func (e *floor) add(_ int, due when, job func(time.Time)) error {
	item := floorItem{period: due.period, job: job, due: time.Time{}.Add(due.phase)}
	if due.cron != "" { // all that is asked here is k/s in the seconds
		var offset, every int
		if _, err := fmt.Sscanf(due.cron, "%d/%d", &offset, &every); err != nil {
			return err
		}
		item.period, item.due = time.Duration(every)*time.Second, time.Now().Truncate(time.Minute).Add(time.Duration(offset)*time.Second)
	}
	e.queue = append(e.queue, item)
	return nil
}

func (e *floor) remove(int) error { return errors.ErrUnsupported }

func (e *floor) start() error {
	now := time.Now()
	for i := range e.queue {
		item := &e.queue[i]
		if item.due.Year() == 1 {
			item.due = now.Add(item.due.Sub(time.Time{}))
		}
		for item.due.Before(now) {
			item.due = item.due.Add(item.period)
		}
	}
	heap.Init(&e.queue)
	for range 2 {
		go func() {
			for batch := range e.batches {
				for _, item := range batch {
					item.job(item.due)
				}
			}
		}()
	}
	go e.loop()
	return nil
}

func (e *floor) loop() {
	for {
		now := time.Now()
		var batch []floorItem
		for len(e.queue) > 0 && !e.queue[0].due.After(now) {
			item := e.queue[0]
			e.queue[0].due = item.due.Add(item.period)
			heap.Fix(&e.queue, 0)
			if e.goroutines {
				go item.job(item.due)
				continue
			}
			if batch = append(batch, item); len(batch) == 256 {
				e.batches <- batch
				batch = nil
			}
		}
		if batch != nil {
			e.batches <- batch
		}
		select {
		case <-time.After(time.Until(e.queue[0].due)):
		case <-e.done:
			close(e.batches)
			return
		}
	}
}

func (e *floor) stop() { close(e.done) }

// onSecond is the whole second before now: the time that a job of the peers, which are not told, was due. Lateness of more than a
// second shows as less.
func onSecond() time.Time { return time.Now().Truncate(time.Second) }

type robfigEngine struct {
	cron *robfig.Cron
	ids  map[int]robfig.EntryID
}

func (e *robfigEngine) add(n int, due when, job func(time.Time)) (err error) {
	e.ids[n], err = e.cron.AddFunc(due.cron, func() { job(onSecond()) })
	return err
}
func (e *robfigEngine) remove(n int) error { e.cron.Remove(e.ids[n]); return nil }
func (e *robfigEngine) start() error       { e.cron.Start(); return nil }
func (e *robfigEngine) stop()              { e.cron.Stop() }

type netresearchEngine struct {
	cron *netresearch.Cron
	ids  map[int]netresearch.EntryID
}

func (e *netresearchEngine) add(n int, due when, job func(time.Time)) (err error) {
	e.ids[n], err = e.cron.AddFunc(due.cron, func() { job(onSecond()) })
	return err
}
func (e *netresearchEngine) remove(n int) error { e.cron.Remove(e.ids[n]); return nil }
func (e *netresearchEngine) start() error       { e.cron.Start(); return nil }
func (e *netresearchEngine) stop()              { e.cron.Stop() }

type gocronEngine struct {
	scheduler gocron.Scheduler
	ids       map[int]uuid.UUID
}

func newGocron() engine {
	s, err := gocron.NewScheduler()
	if err != nil {
		panic(err) // there are no options to be wrong
	}
	return &gocronEngine{s, map[int]uuid.UUID{}}
}

func (e *gocronEngine) add(n int, due when, job func(time.Time)) error {
	j, err := e.scheduler.NewJob(gocron.CronJob(due.cron, true), gocron.NewTask(func() { job(onSecond()) }))
	if err == nil {
		e.ids[n] = j.ID()
	}
	return err
}
func (e *gocronEngine) remove(n int) error { return e.scheduler.RemoveJob(e.ids[n]) }
func (e *gocronEngine) start() error       { e.scheduler.Start(); return nil }
func (e *gocronEngine) stop()              {} // it would wait for jobs; the process ends

type quartzEngine struct{ scheduler quartz.Scheduler }

func newQuartz() engine {
	s, err := quartz.NewStdScheduler()
	if err != nil {
		panic(err) // there are no options to be wrong
	}
	return &quartzEngine{s}
}

func (e *quartzEngine) add(n int, due when, do func(time.Time)) error {
	trigger, err := quartz.NewCronTrigger(due.cron[:len(due.cron)-1] + "?")
	if err != nil {
		return err
	}
	work := job.NewFunctionJob(func(context.Context) (struct{}, error) { do(onSecond()); return struct{}{}, nil })
	return e.scheduler.ScheduleJob(quartz.NewJobDetail(work, quartz.NewJobKey(flowID(n))), trigger)
}

func (e *quartzEngine) remove(n int) error { return e.scheduler.DeleteJob(quartz.NewJobKey(flowID(n))) }
func (e *quartzEngine) start() error       { e.scheduler.Start(context.Background()); return nil }
func (e *quartzEngine) stop()              { e.scheduler.Stop() }

// goroutines is what many write at first: a goroutine with a timer for each job.
type goroutines struct{ stops map[int]chan struct{} }

func (e *goroutines) add(n int, due when, job func(time.Time)) error {
	stop := make(chan struct{})
	e.stops[n] = stop
	go func() {
		timer := time.NewTimer(due.phase)
		defer timer.Stop()
		for {
			select {
			case fire := <-timer.C:
				job(fire)
				timer.Reset(due.period)
			case <-stop:
				return
			}
		}
	}()
	return nil
}
func (e *goroutines) remove(n int) error { close(e.stops[n]); return nil }
func (e *goroutines) start() error       { return nil }
func (e *goroutines) stop()              {}
