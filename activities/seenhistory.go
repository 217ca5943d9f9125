package activities

import (
	"context"
	"reflect"
)

// seenHistory is the history of a task as rules have seen it. It is read once, for rules that look at
// it.
type seenHistory struct {
	passes Passes
	task   string

	isRead bool
	History
	err error
}

func (b boundAction) historyOf(ctx context.Context) *seenHistory {
	return &seenHistory{passes: b.host.Passes, task: OwnerOf(ctx).Workflow}
}

func (s *seenHistory) read() (History, error) {
	if !s.isRead {
		s.History, s.err = s.passes.History(s.task)
		s.isRead = true
	}
	return s.History, s.err
}

// isStale reports whether rules have looked at a history that is another by now. One that could not
// be read has made them ask.
func (s *seenHistory) isStale() (bool, error) {
	if s.isRead && s.err == nil {
		now, err := s.passes.History(s.task)
		return err == nil && !reflect.DeepEqual(now, s.History), err
	}
	return false, nil
}
