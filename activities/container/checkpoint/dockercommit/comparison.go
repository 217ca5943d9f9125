package dockercommit

import "context"

// comparison is one that goes on beside other work, at most once.
type comparison struct {
	cancel  context.CancelFunc
	over    chan struct{}
	differs []string
	err     error
}

// start starts it with compare, unless it has been started.
func (c *comparison) start(ctx context.Context, compare func(context.Context) ([]string, error)) {
	if c.over != nil {
		return
	}
	c.over = make(chan struct{})
	ctx, c.cancel = context.WithCancel(ctx)
	go func() {
		defer close(c.over)
		c.differs, c.err = compare(ctx)
	}()
}

// wait waits for what a started one finds.
func (c *comparison) wait() ([]string, error) {
	<-c.over
	return c.differs, c.err
}

// stop ends it, and returns when it has cleared away what it needed.
func (c *comparison) stop() {
	if c.over != nil {
		c.cancel()
		<-c.over
	}
}
