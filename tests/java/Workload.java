// A real Kafka client that stays alive and does what a test asks, one line at a time.
//
// Started as `Workload serve` it reads requests from stdin, fields parted by tabs:
//
//     BOOTSTRAP <tab> COMMAND <tab> ARGUMENT ...
//
// and answers each with lines `= DATA` followed by one line `ok` or `error WHY`. Started with
// `Workload BOOTSTRAP COMMAND ARGUMENT ...` it does one request and prints the same lines.
// One JVM for many requests, because starting a JVM costs about a second and a request a millisecond.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.function.Consumer;

public final class Workload {
    /** What a command does: it takes its arguments and hands over lines of data. */
    interface Command {
        void run(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception;
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        boolean fine = true;
        if (arguments.length == 1 && arguments[0].equals("serve")) {
            serve(out);
        } else if (arguments.length >= 2) {
            fine = answer(List.of(arguments), out);
        } else {
            System.err.println("usage: Workload serve | Workload BOOTSTRAP COMMAND ARGUMENT ...");
            fine = false;
        }
        // Producers left open on purpose must die without closing, and their threads must not keep us.
        out.flush();
        Runtime.getRuntime().halt(fine ? 0 : 1);
    }

    private static void serve(PrintStream out) throws IOException {
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answer(List.of(line.split("\t", -1)), out);
        }
    }

    private static boolean answer(List<String> fields, PrintStream out) {
        boolean fine = true;
        try {
            if (fields.size() < 2) {
                throw new IllegalArgumentException("a request is BOOTSTRAP COMMAND ARGUMENT ...");
            }
            Arguments arguments = new Arguments(fields.subList(2, fields.size()));
            command(fields.get(1)).run(fields.get(0), arguments, line -> out.println("= " + line));
            out.println("ok");
        } catch (Exception | LinkageError failure) {
            fine = false;
            out.println("error " + oneLine(failure));
        }
        out.flush();
        return fine;
    }

    private static Command command(String name) {
        switch (name) {
            case "create": return Topics::create;
            case "delete": return Topics::delete;
            case "alter-config": return Topics::alterConfig;
            case "add-partitions": return Topics::addPartitions;
            case "delete-records": return Topics::deleteRecords;
            case "describe": return Topics::describe;
            case "describe-config": return Topics::describeConfig;
            case "offsets": return Topics::offsets;
            case "commit": return Topics::commit;
            case "committed": return Topics::committed;
            case "produce": return Produce::records;
            case "compact-load": return Produce::compactLoad;
            case "transactions": return Transactions::run;
            case "end-open": return Transactions::endOpen;
            case "stream-start": return Stream::start;
            case "stream-acked": return Stream::acked;
            case "stream-stop": return Stream::stop;
            case "stream": return Stream::run;
            case "consume-group": return Read::consumeGroup;
            case "digest": return Read::digest;
            case "print": return Read::print;
            case "sequences": return Read::sequences;
            default: throw new IllegalArgumentException("no command is called " + name);
        }
    }

    /** Futures and clients wrap the reason; the innermost cause is the one that says something. */
    private static String oneLine(Throwable failure) {
        Throwable innermost = failure;
        while (innermost.getCause() != null) {
            innermost = innermost.getCause();
        }
        return (innermost.getClass().getSimpleName() + ": " + innermost.getMessage()).replaceAll("\\s+", " ");
    }
}
