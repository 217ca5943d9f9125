package activities

import "io"

// Hidden are the values that m hides, in all their encodings, for another process to make a Masker
// of: see Hiding.
func (m *Masker) Hidden() []string {
	if m == nil {
		return nil
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return append([]string(nil), m.values...)
}

// Hiding makes a Masker of what Hidden has returned.
func Hiding(hidden []string) *Masker { return &Masker{values: hidden} }

// Writer masks what is written before it reaches w, also a value that comes in several pieces. It
// keeps back no more than what may be the beginning of a value, until more comes or Close is
// called. Close does not close w.
func (m *Masker) Writer(w io.Writer) io.WriteCloser {
	s := &maskWriter{to: w}
	for _, v := range m.Hidden() { // the longest first
		s.values[v[0]] = append(s.values[v[0]], v)
	}
	return s
}

type maskWriter struct {
	to     io.Writer
	values [256][]string // by their first byte
	kept   []byte
}

func (s *maskWriter) Write(p []byte) (int, error) {
	if err := s.pass(append(s.kept, p...), false); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *maskWriter) Close() error { return s.pass(s.kept, true) }

// pass masks and hands on what has come, but for an end that may be the beginning of a value.
func (s *maskWriter) pass(b []byte, last bool) error {
	out := make([]byte, 0, len(b))
	at := 0
	for at < len(b) {
		n, begun := s.match(b[at:])
		if begun && !last {
			break
		}
		if n > 0 {
			out = append(out, Mask...)
			at += n
			continue
		}
		out = append(out, b[at])
		at++
	}
	s.kept = append([]byte(nil), b[at:]...)
	_, err := s.to.Write(out)
	return err
}

// match is the length of the longest value that b begins with; begun says that b may be the
// beginning of a longer one.
func (s *maskWriter) match(b []byte) (n int, begun bool) {
	for _, v := range s.values[b[0]] {
		switch short := min(len(v), len(b)); {
		case v[:short] != string(b[:short]):
		case short < len(v):
			begun = true
		default:
			return len(v), begun
		}
	}
	return 0, begun
}
