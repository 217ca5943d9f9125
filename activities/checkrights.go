package activities

import (
	"context"
	"errors"
)

// checkRights are what the checks of a context may do.
type checkRights struct{ programs, addresses []string }

func checkRightsOf(ctx context.Context) checkRights {
	a, _ := ctx.Value(checkRightsKey).(checkRights)
	return a
}

// WithCheckCommands sets the programs that the command checks of ctx may run; "*" is any.
func WithCheckCommands(ctx context.Context, programs []string) context.Context {
	a := checkRightsOf(ctx)
	a.programs = programs
	return context.WithValue(ctx, checkRightsKey, a)
}

// WithCheckAddresses sets what the HTTP checks of ctx may ask: HOST, HOST:PORT, or "*" for any.
func WithCheckAddresses(ctx context.Context, addresses []string) context.Context {
	a := checkRightsOf(ctx)
	a.addresses = addresses
	return context.WithValue(ctx, checkRightsKey, a)
}

// CheckAllowed refuses checks that this worker does not allow: the programs of commands, and the
// addresses that are asked.
func CheckAllowed(ctx context.Context, checks []Check) error {
	var refused []error
	for i, c := range checks {
		var err *Error
		switch {
		case c.Command != nil:
			err = c.Command.checkProgram(ctx)
		case c.HTTP != nil:
			err = c.HTTP.checkAddress(ctx)
		}
		if err != nil {
			refused = append(refused, Errorf(Refused, "check[%d].%s", i, err.Message))
		}
	}
	return errors.Join(refused...)
}

// allow lets the checks of ctx do what the host allows.
func (h Host) allow(ctx context.Context) context.Context {
	return WithCheckAddresses(WithCheckCommands(ctx, h.CheckCommands), h.CheckAddresses)
}
