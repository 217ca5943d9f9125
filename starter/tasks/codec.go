package tasks

import (
	"errors"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// unreadableError says that a payload cannot be decoded, and what a starter lacks that cannot.
type unreadableError struct{ err error }

func (e unreadableError) Error() string {
	return "a payload cannot be read (" + e.err.Error() +
		"): give the starter the codec server of the workers, by `codec` in the profile of the temporal CLI, " +
		"or by TEMPORAL_CODEC_ENDPOINT and TEMPORAL_CODEC_AUTH"
}

func (e unreadableError) Unwrap() error { return e.err }

// explaining is a data converter that tells a payload which it cannot decode from one that is of
// another type.
type explaining struct{ converter.DataConverter }

func (c explaining) FromPayload(payload *commonpb.Payload, into any) error {
	return explainPayload(c.DataConverter.FromPayload(payload, into))
}

func (c explaining) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	return explainPayload(c.DataConverter.FromPayloads(payloads, into...))
}

func explainPayload(err error) error {
	if err == nil {
		return nil
	}
	for _, other := range []error{converter.ErrUnableToDecode, converter.ErrUnableToSetValue,
		converter.ErrMetadataIsNotSet, converter.ErrEncodingIsNotSet} {
		if errors.Is(err, other) {
			return err
		}
	}
	return unreadableError{err}
}

// collecting is a data converter that keeps the first payload that could not be read.
type collecting struct {
	converter.DataConverter

	unreadable *error
}

func (c collecting) FromPayload(payload *commonpb.Payload, into any) error {
	return c.keep(c.DataConverter.FromPayload(payload, into))
}

func (c collecting) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	return c.keep(c.DataConverter.FromPayloads(payloads, into...))
}

func (c collecting) keep(err error) error {
	if _, is := errors.AsType[unreadableError](err); is && *c.unreadable == nil {
		*c.unreadable = err
	}
	return err
}
