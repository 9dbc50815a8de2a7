// A Connect client of each protocol: it prints what it reads of each refusal.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Calls once, and prints the code and the details of the error.
func show(name string, call func() error) {
	err := call()
	var refused *connect.Error
	if err == nil || !errors.As(err, &refused) {
		fmt.Println(name, err)
		return
	}
	fmt.Print(name, " ", refused.Code(), ": ", refused.Message())
	for _, detail := range refused.Details() {
		value, err := detail.Value()
		switch value := value.(type) {
		case *errdetails.RetryInfo:
			fmt.Print(" retry=", value.RetryDelay.AsDuration())
		case *errdetails.QuotaFailure:
			fmt.Print(" quota=", value.Violations[0].Subject)
		case *errdetails.ErrorInfo:
			fmt.Print(" reason=", value.Reason)
		default:
			fmt.Print(" unknown=", err)
		}
	}
	fmt.Println(" retry-after=" + refused.Meta().Get("Retry-After"))
}

func main() {
	ctx, url := context.Background(), os.Args[1]+"/a.Service/Method"
	empty := func() *connect.Request[emptypb.Empty] { return connect.NewRequest(&emptypb.Empty{}) }
	sideless := connect.WithIdempotency(connect.IdempotencyNoSideEffects)
	for _, protocol := range []struct {
		name    string
		options []connect.ClientOption
	}{
		{"connect-proto", nil},
		{"connect-json", []connect.ClientOption{connect.WithProtoJSON()}},
		{"connect-get", []connect.ClientOption{connect.WithHTTPGet(), sideless}},
		{"grpc-web", []connect.ClientOption{connect.WithGRPCWeb()}},
	} {
		caller := connect.NewClient[emptypb.Empty, emptypb.Empty](
			http.DefaultClient, url, protocol.options...)
		show(protocol.name, func() error {
			_, err := caller.CallUnary(ctx, empty())
			return err
		})
		if protocol.name == "connect-get" {
			continue
		}
		show(protocol.name+"-server-stream", func() error {
			stream, err := caller.CallServerStream(ctx, empty())
			if err != nil {
				return err
			}
			for stream.Receive() {
			}
			return stream.Err()
		})
		show(protocol.name+"-client-stream", func() error {
			stream := caller.CallClientStream(ctx)
			_ = stream.Send(&emptypb.Empty{})
			_, err := stream.CloseAndReceive()
			return err
		})
	}
}
