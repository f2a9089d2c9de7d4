import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Runs Debezium's embedded engine, and discards the JSON that it makes of row changes.
 *
 * Arguments: a file with the engine's properties, and the number of row changes after which the program ends. With 0 it
 * ends after the first batch, which has the structures: the position in the log is then on disk. The program prints one
 * line of JSON: the number of row changes after those of the first batch, and the seconds that they took.
 */
public class Engine {
    static long rows, counted, bytes, begun;
    static String sample = "";

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader reader = new FileReader(arguments[0])) {
            properties.load(reader);
        }
        long goal = Long.parseLong(arguments[1]);
        Object done = new Object();
        boolean[] ended = {false};
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
                .using(properties)
                .notifying((List<ChangeEvent<String, String>> batch,
                        DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) -> {
                    long before = rows;
                    for (ChangeEvent<String, String> event : batch) {
                        if (event.value() != null && event.key() != null && event.destination().endsWith(".sb")) {
                            rows++;
                            bytes += event.value().length();
                            sample = event.value();
                        }
                        committer.markProcessed(event);
                    }
                    committer.markBatchFinished();
                    if (before == 0 && rows > 0) {
                        begun = System.nanoTime();
                        counted = rows;
                    }
                    if (rows >= goal) {
                        synchronized (done) {
                            ended[0] = true;
                            done.notifyAll();
                        }
                    }
                })
                .using((success, message, error) -> {
                    synchronized (done) {
                        if (!success) {
                            System.err.println(message + " " + error);
                        }
                        ended[0] = true;
                        done.notifyAll();
                    }
                })
                .build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        synchronized (done) {
            while (!ended[0]) {
                done.wait();
            }
        }
        double seconds = (System.nanoTime() - begun) / 1e9;
        System.out.printf("{\"changes\": %d, \"seconds\": %.3f, \"bytes\": %d}%n", rows - counted, seconds, bytes);
        System.err.println(sample);
        engine.close();
        thread.shutdown();
        thread.awaitTermination(30, TimeUnit.SECONDS);
        System.exit(0);
    }
}
