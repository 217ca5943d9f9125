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

// CheckPrograms refuses command checks whose program this worker does not allow.
func CheckPrograms(ctx context.Context, checks []Check) error {
	return refuseChecks(checks, func(c Check) *Error {
		if c.Command == nil {
			return nil
		}
		return c.Command.checkProgram(ctx)
	})
}

// checkAddresses refuses HTTP checks whose address this worker does not allow. It is the worker's
// host that asks, whatever the world of the step.
func checkAddresses(ctx context.Context, checks []Check) error {
	return refuseChecks(checks, func(c Check) *Error {
		if c.HTTP == nil {
			return nil
		}
		return c.HTTP.checkAddress(ctx)
	})
}

func refuseChecks(checks []Check, refuse func(Check) *Error) error {
	var refused []error
	for i, c := range checks {
		if err := refuse(c); err != nil {
			refused = append(refused, Errorf(Refused, "check[%d].%s", i, err.Message))
		}
	}
	return errors.Join(refused...)
}

// allow lets the checks of ctx do what the host allows.
func (h Host) allow(ctx context.Context) context.Context {
	return WithCheckAddresses(WithCheckCommands(ctx, h.CheckCommands), h.CheckAddresses)
}
