package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/schedulerd/schedulerd/bench/measure"
)

// wire is one connection of a client that costs as little as it can, so that the server is what gives out first: HTTP/2 frames, with
// the headers of calls encoded once, and answers that are counted and not decoded.
type wire struct {
	conn   net.Conn
	out    *bufio.Writer
	framer *http2.Framer
	first  []byte // headers of the first call, which fill the table of the compression
	rest   []byte // and of those after
	next   uint32 // id of the next stream
	unread uint32 // bytes of answers that the server was not told we have read
	in     *bufio.Reader
}

// greatWindow keeps flow control out of the way.
const greatWindow = 1 << 30

func wireTo(address, method string) (*wire, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	w := &wire{conn: conn, out: bufio.NewWriterSize(conn, 64<<10), in: bufio.NewReaderSize(conn, 64<<10), next: 1}
	w.framer = http2.NewFramer(w.out, w.in)
	w.framer.SetReuseFrames()
	w.framer.SetMaxReadFrameSize(1 << 20)
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	headers := func() []byte {
		block.Reset()
		for _, h := range [][2]string{
			{":method", "POST"},
			{":scheme", "http"},
			{":path", method},
			{":authority", address},
			{"content-type", "application/grpc"},
			{"te", "trailers"},
			{"user-agent", "bench"},
		} {
			_ = encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // a buffer takes all
		}
		return bytes.Clone(block.Bytes())
	}
	w.first, w.rest = headers(), headers()
	_, err = w.out.WriteString(http2.ClientPreface)
	return w, errors.Join(err,
		w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: greatWindow}),
		w.framer.WriteWindowUpdate(0, greatWindow), w.out.Flush())
}

// call begins a call with one request and gives the number of its stream.
func (w *wire) call(message []byte) (uint32, error) {
	id, block := w.next, w.rest
	if id == 1 {
		block = w.first
	}
	w.next += 2
	return id, errors.Join(
		w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true}),
		w.framer.WriteData(id, true, message))
}

// event is what came for a stream.
type event struct {
	stream uint32
	data   int  // bytes of messages
	end    bool // of the call
}

// read waits for something to come for a stream. What was written is sent before it waits.
func (w *wire) read() (event, error) {
	for {
		if w.in.Buffered() == 0 {
			if err := w.out.Flush(); err != nil {
				return event{}, err
			}
		}
		frame, err := w.framer.ReadFrame()
		if err != nil {
			return event{}, err
		}
		switch f := frame.(type) {
		case *http2.DataFrame:
			if w.unread += f.Length; w.unread > greatWindow/4 {
				if err := w.framer.WriteWindowUpdate(0, w.unread); err != nil {
					return event{}, err
				}
				w.unread = 0
			}
			return event{f.StreamID, int(f.Length), f.StreamEnded()}, nil
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				return event{f.StreamID, 0, true}, nil
			}
		case *http2.RSTStreamFrame:
			return event{}, fmt.Errorf("the server reset a stream: %v", f.ErrCode)
		case *http2.GoAwayFrame:
			return event{}, fmt.Errorf("the server goes away: %v %s", f.ErrCode, f.DebugData())
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = w.framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = w.framer.WritePing(true, f.Data)
			}
		}
		if err != nil {
			return event{}, err
		}
	}
}

// framed is a message as gRPC sends it.
func framed(m proto.Message) []byte {
	data, err := proto.Marshal(m)
	if err != nil {
		panic(err) // the messages are ours
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}

// callLoad is callers that each make one call after the other.
type callLoad struct {
	Address string
	Method  string
	Conns   int
	Callers int // on each connection
	Calls   [][]byte
	Refused bool // answers are errors
	For     time.Duration
}

// warm is how long a load runs before it is measured.
const warm = 300 * time.Millisecond

var runCalls = measure.Program("calls", func(l callLoad, talk *measure.Talk) (measure.Sample, error) {
	var took measure.Latencies
	begun := time.Now()
	measured, until := begun.Add(warm), begun.Add(warm+l.For)
	ends := make(chan error, l.Conns)
	for c := range l.Conns {
		go func() { ends <- l.caller(c, measured, until, &took) }()
	}
	time.Sleep(time.Until(measured))
	if err := talk.Say("begin"); err != nil {
		return nil, err
	}
	time.Sleep(time.Until(until))
	if err := talk.Say("end"); err != nil {
		return nil, err
	}
	var err error
	for range l.Conns {
		err = errors.Join(err, <-ends)
	}
	s := measure.Sample{"calls": float64(took.Count()), "rps": float64(took.Count()) / l.For.Seconds()}
	if took.Count() > 0 {
		s["p50_us"], s["p99_us"] = took.Quantile(.5)/1e3, took.Quantile(.99)/1e3
	}
	return s, err
})

// caller is one connection with its callers.
func (l callLoad) caller(n int, measured, until time.Time, took *measure.Latencies) error {
	w, err := wireTo(l.Address, l.Method)
	if err != nil {
		return err
	}
	defer w.conn.Close()
	const slots = 1 << 14 // streams end in about the order they began in
	began := make([]time.Time, slots)
	answered := make([]bool, slots)
	turn := n * len(l.Calls) / l.Conns
	call := func() error {
		id, err := w.call(l.Calls[turn%len(l.Calls)])
		began[id/2%slots], answered[id/2%slots] = time.Now(), false
		turn++
		return err
	}
	for range l.Callers {
		if err := call(); err != nil {
			return err
		}
	}
	for {
		e, err := w.read()
		if err != nil {
			return err
		}
		slot := e.stream / 2 % slots
		answered[slot] = answered[slot] || e.data > 0
		if !e.end {
			continue
		}
		if answered[slot] == l.Refused {
			return fmt.Errorf("%s: an answer where an error was expected, or the other way round", l.Method)
		}
		now := time.Now()
		if now.After(until) {
			return nil
		}
		if now.After(measured) {
			took.Add(now.Sub(began[slot]))
		}
		if err := call(); err != nil {
			return err
		}
	}
}
