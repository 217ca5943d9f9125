package mcp

import (
	"context"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// progressEvery is the time between two signs of life: many clients give up on a call after a
// minute without one.
const progressEvery = 5 * time.Second

// progress reports to a client that asks for it that its call goes on.
type progress struct {
	says chan string
	end  context.CancelFunc
	over chan struct{}
	told <-chan *sdk.ProgressNotificationParams // by who carries the call out
}

// newProgress begins with text, until stop. What toldOf reports replaces it.
func newProgress(ctx context.Context, call *sdk.CallToolRequest, text string,
	toldOf func(*sdk.CallToolRequest) <-chan *sdk.ProgressNotificationParams) *progress {
	ctx, cancel := context.WithCancel(ctx)
	p := &progress{says: make(chan string, 1), end: cancel, over: make(chan struct{})}
	if toldOf != nil {
		p.told = toldOf(call)
	}
	if call.Params.GetProgressToken() == nil {
		close(p.over)
		return p
	}
	go p.report(ctx, call, text)
	return p
}

// say is called once at most.
func (p *progress) say(text string) { p.says <- text }

func (p *progress) stop() {
	p.end()
	<-p.over
}

func (p *progress) report(ctx context.Context, call *sdk.CallToolRequest, text string) {
	defer close(p.over)
	began, every := time.Now(), time.NewTicker(progressEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case text = <-p.says:
		case theirs := <-p.told:
			every.Stop() // two who count would go back and forth
			theirs.ProgressToken = call.Params.GetProgressToken()
			_ = call.Session.NotifyProgress(ctx, theirs)
			continue
		}
		_ = call.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ // a client that is gone ends ctx
			ProgressToken: call.Params.GetProgressToken(), Progress: time.Since(began).Seconds(), Message: text,
		})
	}
}
